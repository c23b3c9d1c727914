"""Find nodes for claims without a host: the candidates of the store, asked one after another."""
