"""Our models in transformers' own test suite: copied into it, as tests/models/onlstm, by test_transformers_suite.py."""

import unittest

from onlstm.adapters import huggingface as hf

from ...generation.test_utils import GenerationTesterMixin
from ...pipelines import test_pipelines_feature_extraction
from ...test_configuration_common import ConfigTester
from ...test_modeling_common import ModelTesterMixin, ids_tensor, random_attention_mask
from ...test_pipeline_mixin import PipelineTesterMixin

# ruff: noqa: TID252
hf.register()
test_pipelines_feature_extraction.IMAGE_PROCESSOR_MAPPING = {}  # would need torchvision
DROPOUTS = "dropout_embedding", "dropout_input", "dropout_hidden", "dropout_output", "weight_dropout"


class OnlstmModelTester:
    """Three sequences of seven words, two layers of 32 neurons."""

    base_model_class = hf.OnlstmModel
    is_training = True
    batch_size, seq_length, vocab_size = 3, 7, 99
    hidden_size, num_hidden_layers = 32, 2

    def __init__(self, parent, **_):
        self.parent = parent

    def get_config(self):
        sizes = {"embedding_size": 32, "hidden_size": 32, "num_layers": 2, "chunk_size": 8}
        return hf.OnlstmConfig(vocab_size=self.vocab_size, eos_token_id=98, **sizes, **dict.fromkeys(DROPOUTS, 0.0))

    def prepare_config_and_inputs_for_common(self):
        shape = self.batch_size, self.seq_length
        inputs = {"input_ids": ids_tensor(shape, self.vocab_size), "attention_mask": random_attention_mask(shape)}
        return self.get_config(), inputs


class OnlstmModelTest(ModelTesterMixin, GenerationTesterMixin, PipelineTesterMixin, unittest.TestCase):
    all_model_classes = (hf.OnlstmModel, hf.OnlstmForCausalLM)
    pipeline_model_mapping = {"feature-extraction": hf.OnlstmModel, "text-generation": hf.OnlstmForCausalLM}  # noqa: RUF012
    has_attentions = False
    test_resize_embeddings = False  # the vocabulary of a run is fixed
    test_torch_exportable = False  # with an attention_mask; without one the models can be exported

    def setUp(self):
        self.model_tester = OnlstmModelTester(self)
        common = ["hidden_size", "num_hidden_layers", "vocab_size"]
        self.config_tester = ConfigTester(self, config_class=hf.OnlstmConfig, common_properties=common, hidden_size=400)

    def test_config(self):
        self.config_tester.run_common_tests()

    def test_left_padding_compatibility(self):
        self.has_attentions = True  # the suite takes a model without attention for one that cannot hide words
        super().test_left_padding_compatibility()

    def _check_past_key_values_for_generate(self, batch_size, past_key_values, seq_length, config):
        assert past_key_values.shape == (batch_size, 2 * sum(config.shape().sizes))
