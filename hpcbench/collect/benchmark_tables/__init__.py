"""Tables of micro-benchmarks: what a table holds, and the headings of each tool."""
