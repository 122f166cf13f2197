#include "tests/simulator/scenario/scenario.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/simulator/scenario/seeded_random.h"

namespace tandem::simulator {
namespace {

WorkerPlan MakeWorker(SeededRandom& random, bool is_drafter) {
  WorkerPlan plan;
  plan.max_slots = static_cast<uint32_t>(random.Between(is_drafter ? 1 : 2, 5));
  plan.max_context_tokens = static_cast<uint32_t>(random.Between(is_drafter ? 12 : 40, 64));
  plan.page_tokens = static_cast<uint32_t>(random.Between(2, 6));
  // The pool ranges from too small for one long request to large enough for all requests.
  const int rows = random.Chance(0.6) ? random.Between(24, 60) : random.Between(100, 200);
  plan.num_pages = static_cast<uint32_t>(rows) / plan.page_tokens;
  plan.transports = {v1::RING_TRANSPORT_SHM, v1::RING_TRANSPORT_INLINE};
  if (random.Chance(0.2)) plan.transports = {v1::RING_TRANSPORT_INLINE};
  plan.cache_hit_chance = random.Chance(0.3) ? 0 : random.Real(0.2, 1);
  plan.longest_batch_seconds = random.Real(0.001, 0.012);
  if (is_drafter && random.Chance(0.2)) plan.non_finite_chance = 0.1;
  return plan;
}

ClientPlan MakeClient(SeededRandom& random, const Scenario& scenario, size_t index,
                      const std::vector<std::vector<int32_t>>& prefixes) {
  ClientPlan client;
  client.index = index;
  client.at = kStartTime + random.Real(0, scenario.window_seconds);
  GenerationRequest& request = client.request;
  const int32_t last_id = scenario.pair.vocabulary_size - 1;
  // Half of the prompts share a beginning.
  if (random.Chance(0.5)) request.prompt_token_ids = random.Pick(prefixes);
  const int more = random.Between(request.prompt_token_ids.empty() ? 1 : 0, 12);
  for (int i = 0; i < more; ++i) request.prompt_token_ids.push_back(random.Between(0, last_id - 1));
  // Some requests have the id of a request that may still run.
  request.request_id = absl::StrCat("r", random.Chance(0.08) ? index / 2 : index);
  request.max_tokens = random.Between(1, 20);
  const int room = static_cast<int>(scenario.verifier.max_context_tokens) -
                   static_cast<int>(request.prompt_token_ids.size());
  request.max_tokens = std::min(request.max_tokens, room);
  if (random.Chance(0.7)) request.stop_token_ids = {last_id};
  request.include_stop_in_output = random.Chance(0.3);
  request.skip_special_tokens = random.Chance(0.8);
  if (random.Chance(0.2)) {
    request.stop_strings = {std::string(1, static_cast<char>('a' + random.Between(0, 25)))};
  } else if (random.Chance(0.2)) {
    request.min_tokens = random.Between(1, request.max_tokens);
  }
  if (random.Chance(0.5)) {
    request.draft_length = static_cast<uint32_t>(
        random.Between(0, static_cast<int>(scenario.engine.workers.max_draft_length)));
  }
  v1::SlotOpen& open = request.open;
  const int mode = random.Between(0, 3);  // 0 is greedy, 1 is reproducible, 2 and 3 are sampled
  open.mutable_sampling()->set_temperature(mode == 0 ? 0.0f : 1.0f);
  open.mutable_sampling()->set_seed(index + 1);
  open.set_reproducible(mode == 1);
  open.set_lenience(1);
  open.set_prompt_length(static_cast<uint32_t>(request.prompt_token_ids.size()));
  open.set_cache_salt(random.Chance(0.5) ? "a" : "b");
  request.seed_given = random.Chance(0.5);
  request.wants_logprobs = random.Chance(0.2);
  if (request.wants_logprobs) open.mutable_sampling()->set_logprobs(0);
  return client;
}

// Some requests use lookups, and some predict their output, more or less well.
void ChooseDrafters(SeededRandom& random, const Scenario& scenario, ClientPlan* client) {
  GenerationRequest& request = client->request;
  if (random.Chance(0.5)) return;
  request.drafters = DrafterSet();
  for (const Drafter drafter :
       {Drafter::kModel, Drafter::kSuffix, Drafter::kNgram, Drafter::kPrediction}) {
    if (random.Chance(0.6)) request.drafters.Add(drafter);
  }
  // A generator of its own, so that older scenarios stay what they are.
  SeededRandom of_corpus(scenario.seed ^ (client->index + 1));
  if (scenario.engine.has_corpus && of_corpus.Chance(0.5)) {
    request.drafters.Add(Drafter::kRetrieval);
  }
  if (random.Chance(0.5)) return;
  request.prediction.assign(client->tokens.begin() + client->prompt_len(), client->tokens.end());
  const double wrong_chance = random.Pick(std::vector<double>{0, 0.1, 0.5});
  for (int32_t& id : request.prediction) {
    if (random.Chance(wrong_chance)) id = random.Between(0, scenario.pair.vocabulary_size - 1);
  }
}

struct Profile {
  const char* name;
  bool cancels;
  bool crashes;
  bool hangs;
  bool lossy;
  bool wrong;
  bool routers;
  bool pods;
};
// Chance that the verifier answers a request wrongly each time. The router gives such a request up.
constexpr double kAnsweredWronglyChance = 0.04;

constexpr Profile kProfiles[] = {
    {"calm", false, false, false, false, false, false, false},
    {"cancels", true, false, false, false, false, false, false},
    {"crashes", false, true, false, false, false, false, false},
    {"hangs", true, false, true, false, false, false, false},
    {"lossy", true, false, false, true, false, false, false},
    {"wrong", false, false, false, false, true, false, false},
    {"routers", true, false, false, false, false, true, false},
    {"storm", true, true, true, false, true, true, false},
    {"lossy_storm", true, true, false, true, true, true, false},
    {"pods", true, true, false, false, false, true, true},
};

// Returns the profile of a seed. Every tenth seed has several pods. The other seeds have the other
// profiles in turn.
const Profile& ProfileOf(uint64_t seed) {
  constexpr uint64_t kPods = std::size(kProfiles) - 1;
  return kProfiles[seed % std::size(kProfiles) == kPods ? kPods : seed % kPods];
}

void MakeFaults(SeededRandom& random, const Profile& profile, Scenario* scenario) {
  using Kind = Fault::Kind;
  const auto any_pod = [&] {
    const int last = static_cast<int>(scenario->num_pods) - 1;
    return last == 0 ? 0u : static_cast<uint32_t>(random.Between(0, last));
  };
  const auto add = [&](Kind kind, Worker worker, double least, double most) {
    scenario->faults.push_back(Fault{kind, worker,
                                     kStartTime + random.Real(0, 1.2 * scenario->window_seconds),
                                     random.Real(least, most), any_pod()});
  };
  const auto any_worker = [&] { return random.Chance(0.5) ? Worker::kDrafter : Worker::kVerifier; };
  if (profile.crashes) {
    for (int i = random.Between(1, 4); i > 0; --i) {
      // Some faults last longer than the verifier's budget.
      const double most = random.Chance(0.15) ? 3.5 : 0.4;
      switch (random.Between(0, 3)) {
        case 0:
          add(Kind::kKillSilently, any_worker(), 0.01, most);
          break;
        case 1:
          add(Kind::kEndStreams, any_worker(), 0, 0);
          break;
        default:
          add(Kind::kKill, any_worker(), 0.01, most);
      }
    }
    if (random.Chance(0.3)) add(Kind::kOtherVocabulary, Worker::kDrafter, 0.1, 1);
  }
  if (profile.hangs) {
    for (int i = random.Between(1, 2); i > 0; --i) {
      add(random.Chance(0.5) ? Kind::kStop : Kind::kStuck, any_worker(), 0.05,
          random.Chance(0.5) ? 0.5 : 4);
    }
  }
  if (profile.wrong) {
    for (int i = random.Between(1, 3); i > 0; --i) {
      switch (random.Between(0, 2)) {
        case 0:
          add(Kind::kLoseRows, any_worker(), 0, 0);
          break;
        case 1:
          add(Kind::kBadReply, any_worker(), 0, 0);
          break;
        default:
          add(Kind::kSpoilRing, Worker::kVerifier, 0.01, 0.2);
      }
    }
  }
  if (profile.routers) {
    scenario->num_routers = static_cast<uint32_t>(random.Between(1, 2));
    const int what = random.Between(0, 3);
    if (what == 0) add(Kind::kDrain, Worker::kVerifier, 0, 0);
    if (what == 1) add(Kind::kStopRouter, Worker::kVerifier, 0, 0.5);
    if (what > 1) add(Kind::kRouterDies, Worker::kVerifier, 0, 0.5);
  }
  if (profile.pods) {
    for (int i = random.Between(0, 2); i > 0; --i) {
      // Both workers of a pod are told to stop, as if their host must be emptied.
      add(Kind::kToldToStop, Worker::kVerifier, 0.2, 1.2);
      Fault of_drafter = scenario->faults.back();
      of_drafter.worker = Worker::kDrafter;
      scenario->faults.push_back(of_drafter);
    }
  }
}

EngineOptions MakeEngine(SeededRandom& random) {
  EngineOptions engine;
  engine.workers.num_drafters = random.Chance(0.05) ? 0 : 1;
  engine.workers.max_slots = static_cast<uint32_t>(random.Between(1, 4));
  engine.workers.max_draft_length = static_cast<uint32_t>(random.Between(1, 5));
  engine.workers.transport =
      random.Pick(std::vector<TransportChoice>{TransportChoice::kAuto, TransportChoice::kAuto,
                                               TransportChoice::kInline, TransportChoice::kShm});
  engine.workers.attach_timeout_seconds = 0.5;
  engine.workers.heartbeat_timeout_seconds = 1.2;
  engine.max_queue = static_cast<size_t>(random.Between(0, 5));
  if (random.Chance(0.7)) {
    engine.draft_length =
        static_cast<uint32_t>(random.Between(0, static_cast<int>(engine.workers.max_draft_length)));
  }
  engine.step_rows =
      2 * engine.workers.max_draft_length + static_cast<uint32_t>(random.Between(0, 12));
  engine.step_seconds = random.Chance(0.5) ? 0.2 : random.Real(0.001, 0.01);
  engine.num_cohorts = static_cast<uint32_t>(random.Between(1, 2));
  engine.verifier_timeout_seconds = 2.5;
  engine.drafter_timeout_seconds = 0.6;
  engine.audit_fraction = random.Pick(std::vector<double>{0, 0, 0.5, 1});
  engine.audit_key = random.Next();
  return engine;
}

NetworkPlan MakeNetwork(SeededRandom& random, const Profile& profile) {
  NetworkPlan network;
  network.longest_seconds = random.Real(0.0005, 0.006);
  if (profile.lossy) {
    network.lossy = true;
    network.drop_chance = random.Chance(0.5) ? 0.01 : 0;
    network.repeat_chance = random.Real(0, 0.3);
    network.late_chance = random.Real(0, 0.3);
  }
  return network;
}

// The scenario's models and limits are known already.
std::vector<ClientPlan> MakeClients(SeededRandom& random, const Profile& profile,
                                    const Scenario& scenario) {
  std::vector<ClientPlan> clients;
  std::vector<std::vector<int32_t>> prefixes(2);
  for (auto& prefix : prefixes) {
    for (int i = random.Between(4, 14); i > 0; --i) {
      prefix.push_back(random.Between(0, scenario.pair.vocabulary_size - 2));
    }
  }
  const auto tokenizer =
      testing::ToyTokenizer::OfSize(static_cast<size_t>(scenario.pair.vocabulary_size));
  int num_clients = random.Between(4, 12);
  if (profile.pods) num_clients += random.Between(4, 12);
  for (int i = 0; i < num_clients; ++i) {
    ClientPlan client = MakeClient(random, scenario, static_cast<size_t>(i), prefixes);
    if (profile.cancels && random.Chance(0.4)) {
      client.cancel_after_seconds = random.Real(0, random.Chance(0.5) ? 0.05 : 0.4);
    }
    if (profile.cancels && random.Chance(0.1)) client.reads_responses = random.Between(0, 4);
    if (profile.wrong && random.Chance(0.15)) {
      client.non_finite_at = static_cast<uint32_t>(random.Between(0, client.request.max_tokens));
    }
    client.is_answered_wrongly = profile.wrong && random.Chance(kAnsweredWronglyChance);
    if (profile.crashes && random.Chance(0.1)) client.poison = random.Chance(0.5) ? 1 : 0.3;
    FillUndisturbed(scenario.pair, tokenizer, &client);
    ChooseDrafters(random, scenario, &client);
    clients.push_back(std::move(client));
  }
  return clients;
}

// Lets some clients ask for the log-probabilities of their prompts, and some of these for nothing
// else.
void MakeScores(SeededRandom random, Scenario* scenario) {
  const auto tokenizer =
      testing::ToyTokenizer::OfSize(static_cast<size_t>(scenario->pair.vocabulary_size));
  for (ClientPlan& client : scenario->clients) {
    if (!random.Chance(0.15)) continue;
    client.request.open.set_prompt_logprobs(random.Between(0, 3));
    if (!random.Chance(0.3)) continue;
    client.request.max_tokens = 0;
    client.request.min_tokens = 0;
    client.request.draft_length = 0;
    client.non_finite_at.reset();
    FillUndisturbed(scenario->pair, tokenizer, &client);
  }
}

// Lets an operator load, promote and unload draft models while the clients come.
void MakeSwaps(SeededRandom random, Scenario* scenario) {
  if (scenario->engine.workers.num_drafters == 0 || !random.Chance(0.65)) return;
  scenario->engine.workers.num_places = kMaxDraftModels;
  std::vector<double> times(static_cast<size_t>(random.Between(2, 40)));
  for (double& at : times) at = kStartTime + random.Real(0, scenario->window_seconds);
  std::sort(times.begin(), times.end());
  using Kind = Swap::Kind;
  const std::vector<Kind> kinds = {Kind::kLoad,   Kind::kLoad,   Kind::kPromote, Kind::kRollBack,
                                   Kind::kUnload, Kind::kUnload, Kind::kUnload};
  int num_loaded = 0;
  for (const double at : times) {
    const bool is_first = num_loaded == 0;
    Swap swap{.kind = is_first ? Kind::kLoad : random.Pick(kinds), .at = at};
    if (swap.kind == Swap::Kind::kLoad) {
      swap.model = LoadedModelName(num_loaded++, random.Chance(0.1));
      swap.share = random.Chance(0.3) ? 1 : random.Real(0.1, 1);
    } else if (swap.kind == Swap::Kind::kUnload) {
      swap.model = random.Chance(0.7)
                       ? LoadedModelName(std::max(num_loaded - 1, 0), false)
                       : DraftModelName(kDrafterPeer + static_cast<PeerId>(random.Between(0, 1)));
    }
    scenario->swaps.push_back(swap);
  }
  for (ClientPlan& client : scenario->clients) {
    if (random.Chance(0.1)) client.request.draft_model = LoadedModelName(0, false);
  }
}

// Lets the operator swap the heads too.
void MakeHeadsSwaps(SeededRandom random, Scenario* scenario) {
  if (!random.Chance(0.35)) return;
  using Kind = Swap::Kind;
  for (int left = random.Between(1, 12); left > 0; --left) {
    const bool rolls_back = random.Chance(0.3);
    Swap swap{.kind = rolls_back ? Kind::kRollBackHeads : Kind::kSwapHeads,
              .at = kStartTime + random.Real(0, scenario->window_seconds)};
    if (!rolls_back) {
      swap.model = random.Chance(0.15) ? std::string(kNoHeads)
                                       : HeadsName(random.Between(0, 3), random.Chance(0.15));
    }
    scenario->swaps.push_back(swap);
  }
  std::stable_sort(scenario->swaps.begin(), scenario->swaps.end(),
                   [](const Swap& a, const Swap& b) { return a.at < b.at; });
  for (ClientPlan& client : scenario->clients) {
    if (!random.Chance(0.6)) continue;
    client.request.drafters.Add(Drafter::kMedusa);
    client.request.drafters.Add(Drafter::kEagle);
  }
}

}  // namespace

void FillUndisturbed(const ToyPair& pair, const testing::ToyTokenizer& tokenizer,
                     ClientPlan* client) {
  client->text.clear();
  const GenerationRequest& request = client->request;
  client->tokens = request.prompt_token_ids;
  client->hashes = {kEmptyTokenHash};
  for (int32_t id : client->tokens) {
    client->hashes.push_back(ExtendTokenHash(client->hashes.back(), id));
  }
  client->finish_reason = v1::FINISH_REASON_LENGTH;
  for (int32_t n = 1; n <= request.max_tokens; ++n) {
    const int32_t id = pair.Target(client->hashes.back());
    client->tokens.push_back(id);
    client->hashes.push_back(ExtendTokenHash(client->hashes.back(), id));
    const bool hidden = request.skip_special_tokens && tokenizer.IsSpecial(id);
    const std::string text = hidden ? std::string() : tokenizer.TokenBytes(id);
    const bool may_stop = n > request.min_tokens;
    const auto& stops = request.stop_token_ids;
    if (may_stop && std::find(stops.begin(), stops.end(), id) != stops.end()) {
      if (request.include_stop_in_output) client->text += text;
      client->finish_reason = v1::FINISH_REASON_STOP;
      return;
    }
    client->text += text;
    for (const std::string& stop : request.stop_strings) {
      const size_t place = client->text.find(stop);
      if (place == std::string::npos) continue;
      client->text.resize(place);
      if (request.include_stop_in_output) client->text += stop;
      client->finish_reason = v1::FINISH_REASON_STOP;
      return;
    }
  }
}

// The other texts come first, so that drafts are trees whose first children are often wrong.
std::vector<std::vector<int32_t>> MakeCorpus(const Scenario& scenario, SeededRandom random) {
  std::vector<std::vector<int32_t>> corpus;
  for (const ClientPlan& client : scenario.clients) {
    const std::vector<int32_t>& tokens = client.tokens;
    for (size_t begin = 0; begin + 2 < tokens.size(); ++begin) {
      if (!random.Chance(0.7)) continue;
      const auto end =
          std::min(tokens.size() - 1, begin + static_cast<size_t>(random.Between(2, 7)));
      std::vector<int32_t>& text =
          corpus.emplace_back(tokens.begin() + static_cast<ptrdiff_t>(begin),
                              tokens.begin() + static_cast<ptrdiff_t>(end));
      text.push_back((tokens[end] + 1) % scenario.pair.vocabulary_size);
      text.push_back(tokens[end]);
    }
  }
  for (const ClientPlan& client : scenario.clients) corpus.push_back(client.tokens);
  return corpus;
}

Scenario MakeScenario(uint64_t seed) {
  SeededRandom random(seed * 0x2545F4914F6CDD1DULL + 1);
  Scenario scenario;
  scenario.seed = seed;
  const Profile& profile = ProfileOf(seed);
  scenario.profile = profile.name;
  scenario.num_pods = profile.pods ? 2 : 1;
  // A hanging worker is noticed after about a second. A worker that was told to stop says so with
  // its next pong. Other requests must still be there at that time.
  const bool takes_long = profile.hangs || profile.pods;
  scenario.window_seconds = takes_long && random.Chance(0.5) ? 2.5 : random.Real(0.1, 0.4);
  scenario.pair.percent_agreement = random.Pick(std::vector<int>{0, 50, 80, 100});
  scenario.pair.percent_end = random.Pick(std::vector<int>{0, 5});

  scenario.verifier = MakeWorker(random, false);
  scenario.drafter = MakeWorker(random, true);
  if (random.Chance(0.15)) scenario.drafter_boot_id = "other host";
  scenario.drafter_starts_at = random.Chance(0.8) ? kStartTime : kStartTime + random.Real(0, 0.3);

  scenario.engine = MakeEngine(random);
  scenario.engine.has_corpus = SeededRandom(seed ^ 0xC0B9).Chance(0.5);
  SeededRandom of_models(seed ^ 0x40DE15);
  if (scenario.engine.workers.num_drafters > 0 && of_models.Chance(0.4)) {
    scenario.engine.workers.num_drafters = static_cast<uint32_t>(of_models.Between(2, 3));
  }
  scenario.network = MakeNetwork(random, profile);
  SeededRandom of_heads(seed ^ 0x4EAD5);
  scenario.has_heads = of_heads.Chance(0.4);
  scenario.first_states = static_cast<uint32_t>(SeededRandom(seed ^ 0xEA61E).Between(0, 1));
  SeededRandom of_trees(seed ^ 0x73EE);
  const int most_nodes = of_trees.Chance(0.2) ? 0 : of_trees.Between(2, 16);
  scenario.engine.workers.max_tree_nodes = static_cast<uint32_t>(most_nodes);
  scenario.clients = MakeClients(random, profile, scenario);
  for (ClientPlan& client : scenario.clients) {
    if (scenario.engine.has_corpus && of_trees.Chance(0.3)) {
      client.request.drafters = DrafterSet(Drafter::kRetrieval);
    }
    if (of_trees.Chance(0.2)) {
      client.request.drafters.Add(Drafter::kRecycling);
      client.request.open.set_num_successors(4);
    }
    if (scenario.engine.workers.num_drafters > 1 && of_models.Chance(0.3)) {
      client.request.draft_model = DraftModelName(kDrafterPeer + 1);
    }
    if (scenario.has_heads && of_heads.Chance(0.6)) {
      client.request.drafters.Add(scenario.first_states > 0 ? Drafter::kEagle : Drafter::kMedusa);
    }
    if (!of_trees.Chance(0.7)) continue;
    client.request.max_tree_nodes =
        static_cast<uint32_t>(of_trees.Chance(0.7) ? most_nodes : of_trees.Between(0, most_nodes));
  }
  MakeScores(SeededRandom(seed ^ 0x5C04E), &scenario);
  MakeSwaps(SeededRandom(seed ^ 0x5A4B5), &scenario);
  MakeHeadsSwaps(SeededRandom(seed ^ 0x4EAD55), &scenario);
  scenario.corpus = MakeCorpus(scenario, SeededRandom(seed ^ 0xC0B905));

  MakeFaults(random, profile, &scenario);
  SeededRandom of_faults(seed ^ 0xFA017);
  for (Fault& fault : scenario.faults) {
    fault.of_all_drafters = fault.worker == Worker::kDrafter && of_faults.Chance(0.5);
  }
  std::sort(scenario.faults.begin(), scenario.faults.end(),
            [](const Fault& a, const Fault& b) { return a.at < b.at; });
  scenario.heals_at = kStartTime + 1.2 * scenario.window_seconds + 0.2;
  for (const Fault& fault : scenario.faults) {
    scenario.heals_at = std::max(scenario.heals_at, fault.at + fault.seconds + 0.1);
  }
  return scenario;
}

}  // namespace tandem::simulator
