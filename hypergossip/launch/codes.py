"""With which status a process ends, and the launcher after it; numbers as in the system's <sysexits.h>."""

ERROR = 1
"""The script's own error. Any other status that the script ends with is its own as well."""

REFUSED = 2
"""The command line cannot be carried out."""

APART = 69
"""The processes did not find one another."""

FAULT = 75
"""What failed may not fail again: a process was lost, a disk was full."""

LOST = 76
"""This process was well, and lost another one."""
