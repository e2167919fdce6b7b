"""When does a request run, and with whom in one batch?"""
