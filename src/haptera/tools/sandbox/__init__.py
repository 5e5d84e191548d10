"""The sandbox of shell commands: namespaces, Landlock and seccomp, set up by a small launcher."""
