"""What a client sends: the options and conversations of a program, and the messages that they become."""
