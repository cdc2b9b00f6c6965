"""Language models: the network, its regularisers and softmaxes, its folder, scoring, generating, old checkpoints."""
