"""Sites: site files, their validation, and machine limits."""
