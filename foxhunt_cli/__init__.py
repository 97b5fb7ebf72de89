"""foxhunt: GPU-native reinforcement learning for limit-order-book trading."""

__version__ = "0.1.0"
