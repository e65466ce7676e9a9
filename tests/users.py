"""What tests with models of users share."""

from torch import nn


class DotProduct(nn.Module):
    """Base of users' models: the inner product of the endpoints, which is a logit."""

    decode_returns = "logits"

    def decode(self, z, edge_label_index):
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1)
