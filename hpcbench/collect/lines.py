"""Values of JSON objects that somebody else wrote, and words fit to be shown."""

from hpcbench.contract.text import printable as printable
from hpcbench.contract.values import integer as integer
from hpcbench.contract.values import member as member
from hpcbench.contract.values import number as number
from hpcbench.contract.values import text as text
