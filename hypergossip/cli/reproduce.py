def reproduce():
    """Later."""
