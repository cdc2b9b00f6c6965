"""The one exception for a user's mistake: anybody may raise it; the command line prints it and exits with 2."""


class UserError(Exception):
    """Something the user can mend; the message names the file, line or option and the way out."""
