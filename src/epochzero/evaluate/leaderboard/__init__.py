"""All proxies and combinations on all tables of trained networks, from scores that were stored before."""
