"""The truth about what was learned, on disk: the journal, its snapshots, and how a shard is folded from them."""
