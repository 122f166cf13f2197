"""Tests that the training tools report the acceptance of drafts that plain arithmetic or a plain pass gives.

They need PyTorch, so they run with the Python of build/train: test_acceptance.py. Without transformers, those of the layers to skip
are left out.
"""
import contextlib
import importlib.util
import io
import pathlib
import sys
import unittest

import torch

SOURCE_DIR = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(SOURCE_DIR / "tools" / "train_pair"), str(SOURCE_DIR / "tools" / "layer_skip")]
import acceptance  # noqa: E402

BOTH = ("greedy", "sampled")


def fixed(probabilities):
    """A model that has the same distribution after each text."""
    logits = torch.tensor(probabilities).log()
    return lambda tokens: logits.expand(len(tokens), -1)


def by_last_token(table):
    """A model whose distribution depends on the last token only."""
    return lambda tokens: table.log()[tokens]


def follow(draft, target, tokens, depth, kind):
    generator = torch.Generator().manual_seed(5) if kind == "sampled" else None
    return acceptance.follow(draft, target, torch.as_tensor(tokens), acceptance.Chances(depth), generator)


class FollowTest(unittest.TestCase):
    def test_all_of_a_draft_of_the_target_itself_is_accepted(self):
        table = torch.rand(6, 6, generator=torch.Generator().manual_seed(1)).softmax(-1)
        for kind in BOTH:
            found = follow(by_last_token(table), by_last_token(table), [0, 1, 2, 3, 4], 4, kind)
            self.assertTrue(torch.allclose(found.chances(), torch.ones(4).double(), atol=1e-6), (kind, found.chances()))
            self.assertTrue(torch.allclose(found.tested, torch.full((4,), 5.0).double(), atol=1e-5), (kind, found.tested))

    def test_of_a_draft_that_knows_a_quarter_of_what_the_target_says_a_quarter_is_accepted(self):
        # q is 1/2 for two tokens, and p is 1/8 for all eight. So sum(min(p, q)) and p(x) / q(x) are 1/4.
        found = follow(fixed([0.5, 0.5] + [0.0] * 6), fixed([0.125] * 8), [0] * 64, 3, "sampled")
        self.assertTrue(torch.allclose(found.chances(), torch.full((3,), 0.25).double()), found.chances())
        self.assertTrue(torch.allclose(found.tested, torch.tensor([64.0, 16.0, 4.0]).double()), found.tested)

    def test_nothing_of_a_greedy_draft_with_other_favorites_is_accepted(self):
        found = follow(fixed([0.1, 0.9]), fixed([0.9, 0.1]), [0, 1], 3, "greedy")
        self.assertEqual(found.chances().tolist(), [0, 0, 0])
        self.assertEqual(found.tested.tolist(), [2, 0, 0])

    def test_a_position_counts_only_drafts_whose_earlier_tokens_were_accepted(self):
        # Both say 1 after 0, 2 after 1 and so on, but the target says 0 after 4.
        successor = torch.eye(6).roll(1, 1) + 1e-3
        other = successor.clone()
        other[4] = torch.eye(6)[0] + 1e-3
        found = follow(by_last_token(successor), by_last_token(other), [1, 2, 3, 4], 3, "greedy")
        self.assertEqual(found.tested.tolist(), [4, 3, 2])
        self.assertEqual(found.chances().tolist(), [3 / 4, 2 / 3, 1 / 2])

    def test_a_sampled_position_has_the_chance_that_sums_over_all_drafts_give(self):
        generator = torch.Generator().manual_seed(2)
        q, p = ((3 * torch.randn(5, 5, generator=generator)).softmax(-1) for _ in range(2))
        found = follow(by_last_token(q), by_last_token(p), [3] * 200_000, 3, "sampled")
        both = torch.minimum(p, q)  # for x after a token, this is q(x) min(1, p(x) / q(x))
        reached, want = torch.eye(5)[3], []
        for _ in range(3):
            after = reached @ both
            want.append((after.sum() / reached.sum()).item())
            reached = after
        self.assertGreater(max(want) - min(want), 0.05, "otherwise the positions would prove nothing")
        for got, expected in zip(found.chances().tolist(), want):
            self.assertAlmostEqual(got, expected, delta=0.01)

    def test_a_report_has_chances_and_counts_by_position(self):
        found = follow(fixed([0.5, 0.5] + [0.0] * 6), fixed([0.125] * 8), [0] * 64, 2, "sampled")
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            acceptance.measure_and_report(lambda kind: {"samples": 64, "sampled": found, "run": 1.5, "first": torch.tensor([0.5, 0.25])},
                                          ["held-out tales"], "position")
        self.assertEqual(output.getvalue(), "on held-out tales (64 samples), by position: a sampled draft is accepted 0.250 0.250 "
                                            "(of 64 16), in a row 1.500, the first guess is the target's argmax 0.500 0.250\n")


@unittest.skipUnless(importlib.util.find_spec("tokenizers") and importlib.util.find_spec("safetensors"), "needs tokenizers, safetensors")
class DistillDraftTest(unittest.TestCase):
    def setUp(self):
        import distill_draft
        from models import llama

        self.by_position = distill_draft.by_position
        torch.manual_seed(3)
        self.target = llama.Llama(llama.Shape(24, 16, 2, 4, 2, 24, 8)).eval()
        self.draft = llama.Llama(llama.Shape(24, 8, 1, 2, 1, 16, 4)).eval()
        for model in (self.target, self.draft):  # distributions that are not flat
            for parameter in model.parameters():
                parameter.data *= 8 if parameter.dim() > 1 else 1
        self.windows = torch.randint(0, 24, (3, 33))

    def test_all_of_a_draft_of_the_target_itself_is_accepted(self):
        found = self.by_position(self.target, self.target, self.windows, 4, 8)
        self.assertEqual(found["samples"], 12)
        for kind in BOTH:
            self.assertTrue(torch.allclose(found[kind].chances(), torch.ones(4).double(), atol=1e-4), found[kind].chances())

    def test_greedy_chances_are_those_of_whole_passes_over_text_and_draft(self):
        found = self.by_position(self.target, self.draft, self.windows, 3, 1)["greedy"]
        tested, accepted = [0] * 3, [0] * 3
        for window in self.windows:
            for place in range(1, 33):
                text = window[: place + 1]
                for position in range(3):
                    tested[position] += 1
                    token = self.draft(text[None])[0, -1].argmax()
                    if token != self.target(text[None])[0, -1].argmax():
                        break
                    accepted[position] += 1
                    text = torch.cat([text, token[None]])
        self.assertEqual(found.tested.tolist(), tested)
        self.assertEqual(found.accepted.tolist(), accepted)
        self.assertGreater(accepted[0], 0, "otherwise later positions would prove nothing")
        self.assertLess(accepted[0], tested[0])

    def test_a_draft_of_an_independent_model_has_the_chance_of_the_first_position(self):
        found = self.by_position(self.target, self.draft, self.windows, 1, 1)["sampled"]
        p, q = (model(self.windows).softmax(-1)[:, 1:] for model in (self.target, self.draft))
        self.assertAlmostEqual(found.chances().item(), torch.minimum(p, q).sum(-1).mean().item(), delta=1e-4)
        self.assertLess(found.chances().item(), 0.8)


@unittest.skipUnless(importlib.util.find_spec("transformers"), "needs transformers")
class ChooseLayersTest(unittest.TestCase):
    def setUp(self):
        import choose_layers
        import transformers

        self.tool = choose_layers
        torch.manual_seed(4)
        config = transformers.LlamaConfig(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=3, num_attention_heads=4,
                                          num_key_value_heads=2, head_dim=4, initializer_range=0.4)
        self.model = transformers.LlamaForCausalLM(config).eval()
        ids = torch.randint(0, 40, (1, 20))
        self.text = (ids, 5, self.model(ids, use_cache=True).past_key_values)

    def chances(self, skipped, kind, depth=4):
        generator = torch.Generator().manual_seed(1) if kind == "sampled" else None
        return self.tool.by_position(self.model, [self.text], skipped, depth, generator)

    @torch.no_grad()
    def test_branches_of_the_whole_target_have_the_logits_of_whole_passes(self):
        ids, begin, cache = self.text
        places = self.tool.places_of(ids, begin)
        branches = self.tool.Branches(self.model, cache, places)
        texts = [ids[0, :place] for place in places]
        tokens = ids[0, begin - 1 : -1]
        for _ in range(3):
            texts = [torch.cat([text, token[None]]) for text, token in zip(texts, tokens)]
            got = branches.step(tokens)
            want = torch.stack([self.model(text[None]).logits[0, -1] for text in texts])
            self.assertTrue(torch.allclose(got, want, atol=1e-4), (got - want).abs().max())
            tokens = got.argmin(-1)  # no token that the text has

    @torch.no_grad()
    def test_all_of_a_draft_without_layers_that_contribute_nothing_is_accepted(self):
        for kind in BOTH:
            self.assertLess(self.chances({1}, kind)[1].chances()[0], 0.9)
        for product in (self.model.model.layers[1].self_attn.o_proj, self.model.model.layers[1].mlp.down_proj):
            product.weight.zero_()
        ids, begin, _ = self.text
        self.text = (ids, begin, self.model(ids, use_cache=True).past_key_values)
        for kind in BOTH:
            count, chances = self.chances({1}, kind)
            self.assertEqual(count, 15)
            self.assertTrue(torch.allclose(chances.chances(), torch.ones(4).double(), atol=1e-4), chances.chances())

    @torch.no_grad()
    def test_the_first_position_of_a_greedy_draft_is_what_chooses_the_layers(self):
        ids, begin, cache = self.text
        ids = self.model.generate(ids[:, :begin], max_new_tokens=15, do_sample=False, eos_token_id=None)
        self.text = (ids, begin, self.model(ids, use_cache=True).past_key_values)
        chance = self.chances({2}, "greedy")[1].chances()[0].item()
        self.assertAlmostEqual(chance, self.tool.agreement(self.model, [self.text], {2}), delta=1e-6)


if __name__ == "__main__":
    unittest.main()
