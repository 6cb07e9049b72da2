"""The controller of a sweep: its loop, what runs next, how it ends, and the state that it keeps."""
