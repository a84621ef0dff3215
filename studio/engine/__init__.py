"""Where pictures are made: the `Engine` protocol and its one implementation, a child process."""
