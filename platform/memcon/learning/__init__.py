"""What is learned: arms, state keys, the Q-table, exploration, credit, and the pure shard that owns a table."""
