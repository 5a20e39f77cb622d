//! The agent as its asker sees it, over a pair of pipes.
