// make_fuzz_seeds FOLDER writes FOLDER/TARGET/seed_*, the valid inputs of the targets that take
// messages or binary files. Fuzzing starts from them after a protocol has changed. Texts come from
// tests/golden.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/ring/ring_layout.h"
#include "tandem/v1/worker.pb.h"
#include "tests/fuzz/fuzz_input.h"

namespace tandem::fuzz {
namespace {

constexpr unsigned kRepairAll = 15;

class Seeds {
 public:
  explicit Seeds(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void Write(const std::string& target, const std::string& name, const FuzzOutput& input) const {
    std::filesystem::create_directories(folder_ / target);
    std::ofstream(folder_ / target / ("seed_" + name), std::ios::binary) << input.bytes();
  }

 private:
  std::filesystem::path folder_;
};

// ---------------------------------------------------------------- files

// A tensor's name, type, shape and values.
struct SeedTensor {
  std::string name;
  std::string shape;
  size_t bytes;
};

std::string SafetensorsFile(const std::vector<SeedTensor>& tensors, const std::string& dtype) {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";
  size_t offset = 0;
  for (const SeedTensor& tensor : tensors) {
    header += ",\"" + tensor.name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + tensor.shape +
              ",\"data_offsets\":[" + std::to_string(offset) + "," +
              std::to_string(offset + tensor.bytes) + "]}";
    offset += tensor.bytes;
  }
  header += "}";
  const uint64_t length = header.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file + header + std::string(offset, '\x3c');
}

// Returns all tensors of the model that safetensors_fuzz.cc loads.
std::vector<SeedTensor> TinyModel(size_t element_bytes) {
  const std::string layer = "model.layers.0.";
  const auto tensor = [&](const std::string& name, const std::string& shape, size_t elements) {
    return SeedTensor{name, shape, elements * element_bytes};
  };
  return {tensor("model.embed_tokens.weight", "[3,2]", 6),
          tensor(layer + "input_layernorm.weight", "[2]", 2),
          tensor(layer + "self_attn.q_proj.weight", "[2,2]", 4),
          tensor(layer + "self_attn.k_proj.weight", "[2,2]", 4),
          tensor(layer + "self_attn.v_proj.weight", "[2,2]", 4),
          tensor(layer + "self_attn.o_proj.weight", "[2,2]", 4),
          tensor(layer + "post_attention_layernorm.weight", "[2]", 2),
          tensor(layer + "mlp.gate_proj.weight", "[1,2]", 2),
          tensor(layer + "mlp.up_proj.weight", "[1,2]", 2),
          tensor(layer + "mlp.down_proj.weight", "[2,1]", 2),
          tensor("model.norm.weight", "[2]", 2)};
}

void WriteSafetensors(const Seeds& seeds) {
  for (const auto& [dtype, bytes] :
       {std::pair("F32", 4), std::pair("BF16", 2), std::pair("F16", 2)}) {
    FuzzOutput whole;
    seeds.Write("safetensors", dtype,
                whole.Byte(0).Rest(SafetensorsFile(TinyModel(static_cast<size_t>(bytes)), dtype)));
  }
  FuzzOutput scalar;
  seeds.Write("safetensors", "scalar",
              scalar.Byte(0).Rest(SafetensorsFile({{"x", "[]", 8}}, "I64")));
  FuzzOutput empty;
  seeds.Write("safetensors", "empty_tensor",
              empty.Byte(0).Rest(SafetensorsFile({{"x", "[0,7]", 0}, {"y", "[1]", 1}}, "U8")));
  FuzzOutput sharded;
  seeds.Write(
      "safetensors", "index",
      sharded.Byte(1)
          .Chunk("{\"metadata\":{\"total_size\":8},\"weight_map\":{\"x\":\"a.safetensors\"}}")
          .Rest(SafetensorsFile({{"x", "[2]", 8}}, "F32")));
}

// The heads fit the target of heads_fuzz.cc.
void WriteHeads(const Seeds& seeds) {
  const std::string sizes = R"("hidden_size":4,"vocab_size":8,)";
  const auto write = [&](const std::string& name, const std::string& config,
                         const std::vector<SeedTensor>& tensors) {
    FuzzOutput input;
    seeds.Write("heads", name,
                input.Chunk("{" + sizes + config + "}").Rest(SafetensorsFile(tensors, "BF16")));
  };
  write("medusa", R"("num_heads":1,"num_hidden_layers":1)",
        {{"blocks.0.layers.0.weight", "[4,4]", 32}, {"lm_heads.0.weight", "[8,4]", 64}});
  write("blockwise", R"("num_heads":1,"original_lm_head":true)",
        {{"blocks.0.layers.0.weight", "[4,4]", 32}});
  write("numbered", R"("medusa_num_heads":1,"medusa_num_layers":1)",
        {{"0.0.linear.weight", "[4,4]", 32},
         {"0.0.linear.bias", "[4]", 8},
         {"0.1.weight", "[8,4]", 64}});
  const std::string eagle =
      R"("architectures":["LlamaForCausalLM"],"hidden_act":"silu","intermediate_size":4,)"
      R"("num_attention_heads":2,"num_key_value_heads":1,"head_dim":2,"num_hidden_layers":1,)"
      R"("max_position_embeddings":64,"rms_norm_eps":1e-5)";
  // `inputs` rows go to the attention.
  const auto layer_of = [](const std::string& layer, size_t inputs) {
    const std::string in = std::to_string(4 * inputs) + "]";
    return std::vector<SeedTensor>{{layer + "self_attn.q_proj.weight", "[4," + in, 32 * inputs},
                                   {layer + "self_attn.k_proj.weight", "[2," + in, 16 * inputs},
                                   {layer + "self_attn.v_proj.weight", "[2," + in, 16 * inputs},
                                   {layer + "self_attn.o_proj.weight", "[4,4]", 32},
                                   {layer + "post_attention_layernorm.weight", "[4]", 8},
                                   {layer + "mlp.gate_proj.weight", "[4,4]", 32},
                                   {layer + "mlp.up_proj.weight", "[4,4]", 32},
                                   {layer + "mlp.down_proj.weight", "[4,4]", 32}};
  };
  std::vector<SeedTensor> first = layer_of("layers.0.", 1);
  first.push_back({"fc.weight", "[4,8]", 64});
  write("eagle", eagle, first);
  std::vector<SeedTensor> third = layer_of("midlayer.", 2);
  for (const std::string name : {"midlayer.input_layernorm", "midlayer.hidden_norm", "norm"}) {
    third.push_back({name + ".weight", "[4]", 8});
  }
  third.push_back({"fc.weight", "[4,8]", 64});
  third.push_back({"lm_head.weight", "[8,4]", 64});
  write("layer_skip", R"("num_hidden_layers":2,"skipped_layers":[1])", {});
  write("pass", R"("num_lookahead_tokens":2)", {{"lookahead.weight", "[2,4]", 16}});
  write("eagle3", eagle + R"(,"eagle_config":{"eagle_aux_hidden_state_layer_ids":[0,1]})", third);
}

// ---------------------------------------------------------------- requests

FuzzOutput& Add(FuzzOutput& input, unsigned byte, const google::protobuf::Message& message) {
  return input.Byte(byte).Chunk(message.SerializeAsString());
}

void WriteRequests(const Seeds& seeds) {
  v1::GenerateRequest text;
  text.set_prompt("once upon a time");
  v1::GenerateRequest ids;
  for (const int id : {1, 2, 3}) ids.mutable_prompt_token_ids()->add_ids(id);
  v1::SamplingParams* sampling = ids.mutable_sampling_params();
  sampling->set_temperature(0.8f);
  sampling->set_top_p(0.9f);
  sampling->set_top_k(20);
  sampling->set_min_p(0.01f);
  sampling->set_repetition_penalty(1.1f);
  sampling->set_presence_penalty(0.5f);
  sampling->set_frequency_penalty(-0.5f);
  (*sampling->mutable_logit_bias())[5] = -3;
  sampling->set_max_tokens(20);
  sampling->set_min_tokens(3);
  sampling->add_stop("ab");
  sampling->add_stop("<3");
  sampling->add_stop_token_ids(9);
  sampling->set_logprobs(2);
  sampling->set_include_stop_str_in_output(true);
  ids.set_request_id("mine");
  ids.set_model("toy-target");
  v1::GenerateRequest seeded = text;
  seeded.mutable_sampling_params()->set_seed(7);
  seeded.mutable_sampling_params()->set_ignore_eos(true);
  seeded.mutable_sampling_params()->set_skip_special_tokens(false);
  seeded.mutable_speculation()->set_draft_length(3);
  seeded.mutable_speculation()->set_drafter("toy-draft");
  seeded.set_add_special_tokens(false);
  v1::GenerateRequest lenient = text;
  lenient.mutable_sampling_params()->set_temperature(0);
  lenient.mutable_speculation()->set_lenience(0.5f);
  lenient.mutable_speculation()->set_enabled(true);

  FuzzOutput together;
  Add(Add(Add(Add(together, 0, text), 3, ids), 20, seeded), 2, lenient);
  seeds.Write("request", "four_together", together);
  FuzzOutput canceled;
  Add(Add(Add(canceled, 255, ids), 255, seeded), 1, text);
  seeds.Write("request", "canceled", canceled);
  FuzzOutput twins;
  Add(Add(twins, 0, ids), 0, ids);
  seeds.Write("request", "same_id_twice", twins);
}

// ---------------------------------------------------------------- worker frames

v1::SlotOpen SampledOpen() {
  v1::SlotOpen open;
  open.mutable_sampling()->set_temperature(1);
  open.mutable_sampling()->set_seed(3);
  open.mutable_sampling()->set_logprobs(2);
  open.mutable_sampling()->set_repetition_penalty(1.2f);
  open.set_lenience(1);
  open.set_prompt_length(3);
  open.set_audit(true);
  return open;
}

template <typename Item>
Item FirstItem(const v1::SlotOpen& open, int num_tokens) {
  Item item;
  item.mutable_at();
  *item.mutable_open() = open;
  for (int id = 0; id < num_tokens; ++id) item.add_token_ids(id % 29);
  return item;
}

void WriteDraftSessions(const Seeds& seeds) {
  v1::DraftCommand attach;
  attach.mutable_attach();
  v1::DraftCommand ring;
  ring.mutable_open_ring()->set_ring_epoch(5);
  v1::DraftCommand vocabulary;
  vocabulary.mutable_read_vocabulary();
  v1::DraftCommand first;
  *first.mutable_propose()->add_items() = FirstItem<v1::ProposeItem>(SampledOpen(), 5);
  first.mutable_propose()->mutable_items(0)->set_draft_length(3);
  v1::DraftCommand next;
  v1::ProposeItem* item = next.mutable_propose()->add_items();
  item->mutable_at()->set_length(1);  // rolls back one row
  item->add_token_ids(11);
  item->set_draft_length(4);
  v1::DraftCommand update;
  update.mutable_update_slots()->add_rollbacks()->set_length(2);
  update.mutable_update_slots()->add_closes()->set_slot(1);
  v1::DraftCommand close;
  close.mutable_update_slots()->add_closes();

  FuzzOutput rounds;
  for (const auto* command : {&attach, &vocabulary, &ring, &first, &next, &update, &next, &close}) {
    Add(rounds, kRepairAll, *command);
  }
  seeds.Write("draft_session", "rounds", rounds);

  v1::DraftCommand tree = first;
  for (const uint32_t num_siblings : {2, 0, 3}) {
    tree.mutable_propose()->mutable_items(0)->add_num_siblings(num_siblings);
  }
  v1::DraftCommand too_wide = next;
  too_wide.mutable_propose()->mutable_items(0)->add_num_siblings(4);
  FuzzOutput trees;
  for (const auto* command : {&attach, &ring, &tree, &next, &too_wide, &close}) {
    Add(trees, kRepairAll, *command);
  }
  seeds.Write("draft_session", "trees", trees);

  v1::SlotOpen greedy;
  greedy.mutable_sampling()->set_temperature(0);
  greedy.set_lenience(1);
  greedy.set_cache_salt("tenant");
  v1::DraftCommand pages;
  *pages.mutable_propose()->add_items() = FirstItem<v1::ProposeItem>(greedy, 130);
  *pages.mutable_propose()->add_items() = FirstItem<v1::ProposeItem>(greedy, 70);
  pages.mutable_propose()->mutable_items(1)->mutable_at()->set_slot(1);
  FuzzOutput prefix;
  for (const auto* command : {&attach, &pages, &close, &pages}) Add(prefix, kRepairAll, *command);
  seeds.Write("draft_session", "pages", prefix);
}

void WriteVerifierSessions(const Seeds& seeds) {
  v1::VerifierCommand attach;
  attach.mutable_attach();
  v1::VerifierCommand ring;
  ring.mutable_create_ring();
  v1::VerifierCommand confirm;
  confirm.mutable_confirm_ring();
  v1::VerifierCommand first;
  *first.mutable_verify()->add_items() = FirstItem<v1::VerifyItem>(SampledOpen(), 5);
  first.mutable_verify()->mutable_items(0)->set_sample(true);
  v1::VerifierCommand rows;
  rows.mutable_log_prob_chunk()->set_rows(2);
  v1::VerifierCommand block;
  v1::VerifyItem* item = block.mutable_verify()->add_items();
  item->mutable_at();
  item->add_token_ids(4);
  for (const int id : {7, 8, 9}) item->add_draft_token_ids(id);
  item->set_sample(true);
  v1::VerifierCommand update;
  update.mutable_update_slots()->add_rollbacks()->set_length(2);
  v1::VerifierCommand close;
  close.mutable_update_slots()->add_closes();

  FuzzOutput rounds;
  for (const auto* command :
       {&attach, &ring, &confirm, &first, &rows, &block, &block, &update, &rows, &block, &close}) {
    Add(rounds, kRepairAll, *command);
  }
  seeds.Write("verifier_session", "rounds", rounds);

  v1::SlotOpen coupled = SampledOpen();
  coupled.set_reproducible(true);
  coupled.clear_audit();
  v1::VerifierCommand pages;
  for (const uint32_t slot : {0, 1, 2}) {
    v1::VerifyItem* prompt = pages.mutable_verify()->add_items();
    *prompt = FirstItem<v1::VerifyItem>(coupled, 100 + 30 * static_cast<int>(slot));
    prompt->mutable_at()->set_slot(slot);
    prompt->set_sample(slot != 1);
  }
  FuzzOutput prefix;
  for (const auto* command : {&attach, &pages, &close, &block, &pages}) {
    Add(prefix, kRepairAll, *command);
  }
  seeds.Write("verifier_session", "pages", prefix);

  v1::VerifierCommand asks = first;
  v1::ProposalShape* shape = asks.mutable_verify()->mutable_items(0)->mutable_propose();
  shape->set_max_depth(3);
  shape->set_max_nodes(6);
  v1::VerifierCommand tree = block;
  v1::VerifyItem* judged = tree.mutable_verify()->mutable_items(0);
  for (const int parent : {-1, -1, 0}) judged->add_parents(parent);
  judged->mutable_propose()->set_max_depth(2);
  v1::VerifierCommand too_deep = block;
  too_deep.mutable_verify()->mutable_items(0)->mutable_propose()->set_max_depth(1 << 20);
  FuzzOutput proposals;
  for (const auto* command : {&attach, &asks, &tree, &update, &tree, &too_deep, &tree, &close}) {
    Add(proposals, kRepairAll, *command);
  }
  seeds.Write("verifier_session", "proposals", proposals);
}

// ---------------------------------------------------------------- replies

void WriteReplies(const Seeds& seeds) {
  FuzzOutput honest;
  seeds.Write("worker_replies", "honest", honest.Byte(15));

  v1::DraftReply refused;
  refused.mutable_error()->set_code(v1::WORKER_CODE_FAILED_PRECONDITION);
  refused.mutable_error()->set_message("no");
  v1::VerifyResult result;
  result.set_num_accepted(3);
  result.set_next_token_id(99);
  result.set_ring_error("x");
  v1::SlotState state;
  state.set_code(v1::WORKER_CODE_ABORTED);
  state.set_cached_len(1);
  v1::VerifyResult proposed;
  for (const int id : {3, 64, -1}) proposed.mutable_proposal()->add_token_ids(id);
  for (const int parent : {-1, 1, 7}) proposed.mutable_proposal()->add_parents(parent);
  for (const float chance : {0.5f, 2.0f, 0.0f}) proposed.mutable_proposal()->add_chances(chance);
  v1::VerifierReply verify;
  verify.mutable_verify()->add_results()->set_next_token_id(5);
  verify.mutable_verify()->set_compute_seconds(-1);
  v1::VerifierReply attach;
  attach.mutable_attach()->set_protocol_version(2);
  attach.mutable_attach()->set_vocabulary_size(64);
  const auto spoil = [](FuzzOutput& input, int honest_replies, unsigned how,
                        const google::protobuf::Message& message) {
    for (int i = 0; i < honest_replies; ++i) input.Byte(7);
    Add(input, how, message);
  };
  FuzzOutput input;
  input.Byte(15);
  spoil(input, 6, 4, state);
  spoil(input, 1, 3, result);
  spoil(input, 3, 0, verify);
  spoil(input, 2, 2, refused);
  spoil(input, 5, 1, attach);
  seeds.Write("worker_replies", "spoiled", input);
  FuzzOutput early;
  early.Byte(3);
  spoil(early, 0, 0, attach);
  spoil(early, 1, 2, refused);
  seeds.Write("worker_replies", "spoiled_attach", early);
  FuzzOutput proposals;
  proposals.Byte(1);
  for (const int honest_replies : {1, 1, 2, 2, 3}) spoil(proposals, honest_replies, 3, proposed);
  seeds.Write("worker_replies", "spoiled_proposal", proposals);
}

// ---------------------------------------------------------------- ring

void WriteRings(const Seeds& seeds) {
  const std::vector<float> values(8, -std::log(4.0f));
  const std::string rows(reinterpret_cast<const char*>(values.data()), 8 * sizeof(float));
  RingEntry entry{};
  entry.state = RingEntryState::kReady;
  entry.rows = 2;
  entry.ring_epoch = 7;
  entry.sequence = 1;
  const std::string entries(reinterpret_cast<const char*>(&entry), sizeof(entry));
  constexpr unsigned kEntry0Sequence1 = 1 << 2;

  FuzzOutput shared;
  seeds.Write("ring", "shared",
              shared.Byte(0)
                  .Byte(1)
                  .Byte(1)
                  .Chunk(entries)
                  .Chunk(rows)
                  .Byte(kEntry0Sequence1)
                  .Byte(2)
                  .Byte(3));
  FuzzOutput pieces;
  pieces.Byte(1).Byte(2);
  pieces.Byte(kEntry0Sequence1).Byte(2).Byte(0).Chunk(rows.substr(0, 16));
  pieces.Byte(kEntry0Sequence1).Byte(2).Byte(16).Chunk(rows.substr(16));
  pieces.Byte(kEntry0Sequence1).Byte(2).Byte(1);
  seeds.Write("ring", "pieces", pieces);
  FuzzOutput writer;
  writer.Byte(2).Chunk("").Chunk("");
  writer.Byte(kEntry0Sequence1).Byte(2).Byte(0).Byte(2 << 2).Byte(1).Byte(1);
  seeds.Write("ring", "writer", writer);
}

}  // namespace
}  // namespace tandem::fuzz

int main(int argc, char** argv) {
  if (argc != 2 || argv[1][0] == '-') {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  const tandem::fuzz::Seeds seeds(argv[1]);
  tandem::fuzz::WriteSafetensors(seeds);
  tandem::fuzz::WriteHeads(seeds);
  tandem::fuzz::WriteRequests(seeds);
  tandem::fuzz::WriteDraftSessions(seeds);
  tandem::fuzz::WriteVerifierSessions(seeds);
  tandem::fuzz::WriteReplies(seeds);
  tandem::fuzz::WriteRings(seeds);
  return 0;
}
