"""The one process that may change a shard: pure shard plus journal, with lease, group commit, snapshots and expiry."""
