"""Replacement of a module's forward: the module itself stays, with its class, its weights and its hooks."""

from __future__ import annotations

from typing import Any

import torch


class Replacement:
    """A `forward` stored in a module, where it takes precedence over that of its class.

    Args:
        module: the module.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module

    def install(self) -> None:
        """Make the module call this."""
        self.module.forward = self

    def remove(self) -> None:
        """Make the module call its class's `forward` again."""
        del self.module.forward

    def original(self, *args: Any, **named: Any) -> Any:
        """Call the forward of the module's class."""
        return type(self.module).forward(self.module, *args, **named)


def replacement_of(module: torch.nn.Module) -> Replacement | None:
    """The replacement that a module has, if any."""
    forward = vars(module).get("forward")
    return forward if isinstance(forward, Replacement) else None


def is_replaced(module: torch.nn.Module) -> bool:
    """Whether anything has replaced a module's `forward`."""
    return "forward" in vars(module)


def has_hooks(module: torch.nn.Module) -> bool:
    """Whether the module has hooks on its call."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)
