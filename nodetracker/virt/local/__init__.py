"""Driver of this machine itself: all its facts, no guests."""
