"""How far scores can be trusted: benchmarks of proxies, their cards, and speed."""
