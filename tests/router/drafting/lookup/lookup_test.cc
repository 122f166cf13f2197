#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "services/router/drafting/lookup/match_index.h"
#include "services/router/drafting/lookup/ngram_lookup.h"
#include "services/router/drafting/lookup/prediction_lookup.h"
#include "services/router/drafting/lookup/request_lookups.h"
#include "services/router/drafting/lookup/retrieval_lookup.h"
#include "services/router/drafting/lookup/suffix_lookup.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int32_t> Letters(const std::string& text) { return {text.begin(), text.end()}; }
std::string Text(const std::vector<int32_t>& tokens) { return {tokens.begin(), tokens.end()}; }

DrafterSet AllLookups() {
  DrafterSet drafters(Drafter::kSuffix);
  drafters.Add(Drafter::kNgram);
  drafters.Add(Drafter::kPrediction);
  return drafters;
}

std::vector<int32_t> RandomText(size_t size, int vocabulary, std::mt19937_64& random) {
  std::vector<int32_t> text(size);
  for (int32_t& token : text) token = static_cast<int32_t>(random() % vocabulary);
  return text;
}

std::string ByNgram(const std::string& text, uint32_t max_tokens, NgramOptions options = {}) {
  return Text(FindByNgram(Letters(text), max_tokens, options).token_ids);
}

LookupDraft Retrieved(const std::string& text, uint32_t match_length) {
  return {.drafter = Drafter::kRetrieval,
          .token_ids = Letters(text),
          .parents = {},
          .match_length = match_length,
          .chances = {}};
}

TEST(RetrievalLookupTest, AnAnswerServesWhileTheTextGoesOnLikeIt) {
  RetrievalLookup lookup;
  EXPECT_TRUE(lookup.WantsSearch(Letters("abc")));
  lookup.OnSearch(3);
  EXPECT_FALSE(lookup.WantsSearch(Letters("abc"))) << "it was searched for";
  EXPECT_THAT(lookup.Find(Letters("abc"), 8).token_ids, IsEmpty());
  lookup.OnFound(3, Retrieved("defghijklmnopq", 2));
  EXPECT_EQ(Text(lookup.Find(Letters("abc"), 4).token_ids), "defg");
  const LookupDraft later = lookup.Find(Letters("abcde"), 4);
  EXPECT_EQ(Text(later.token_ids), "fghi");
  EXPECT_EQ(later.match_length, 4u);
  EXPECT_EQ(later.drafter, Drafter::kRetrieval);
  EXPECT_FALSE(lookup.WantsSearch(Letters("abcde"))) << "enough is left";
  EXPECT_TRUE(lookup.WantsSearch(Letters("abcdefghijk"))) << "little is left";
  EXPECT_THAT(lookup.Find(Letters("abcdX"), 4).token_ids, IsEmpty());
  EXPECT_TRUE(lookup.WantsSearch(Letters("abcdX")));
  EXPECT_THAT(lookup.Find(Letters("abcdefghijklmnopq"), 4).token_ids, IsEmpty()) << "its end";
  EXPECT_THAT(lookup.Find(Letters("ab"), 4).token_ids, IsEmpty()) << "a shorter text";
}

// Counts the searches of 1,000 rounds that draft nothing, each with this answer.
int CountSearches(const LookupDraft& answer) {
  RetrievalLookup lookup;
  std::string text = "a";
  int searches = 0;
  for (int round = 0; round < 1000; ++round) {
    text += 'a';
    if (lookup.WantsSearch(Letters(text))) {
      ++searches;
      lookup.OnSearch(text.size());
      lookup.OnFound(text.size(), answer);
    }
    lookup.OnRound(0, 0);
  }
  return searches;
}

TEST(RetrievalLookupTest, SearchesThatFindNothingBecomeRare) {
  const int searches = CountSearches(Retrieved("", 0));
  EXPECT_LT(searches, 45);
  EXPECT_GT(searches, 25) << "text may begin to be that of the corpus";
}

TEST(RetrievalLookupTest, WhatIsFoundAndNeverUsedMakesSearchesRareToo) {
  EXPECT_LT(CountSearches(Retrieved("bcdefghijklmn", 3)), 45);
}

TEST(RetrievalLookupTest, AnAcceptedDraftMakesSearchesFrequentAgain) {
  RetrievalLookup lookup;
  EXPECT_TRUE(lookup.is_worth_waiting_for()) << "nothing speaks against it yet";
  for (int i = 0; i < 12; ++i) lookup.OnRound(4, 0);
  EXPECT_FALSE(lookup.is_worth_waiting_for());
  lookup.OnSearch(1);
  EXPECT_FALSE(lookup.WantsSearch(Letters("ab")));
  lookup.OnRound(4, 1);
  EXPECT_TRUE(lookup.WantsSearch(Letters("ab")));
  EXPECT_TRUE(lookup.is_worth_waiting_for());
  lookup.OnRound(4, 0);
  EXPECT_FALSE(lookup.is_worth_waiting_for());
}

TEST(NgramLookupTest, TakesWhatFollowedTheLongestContextMostOften) {
  EXPECT_EQ(ByNgram("-abX+abY*abX=ab", 1), "X");
  EXPECT_EQ(ByNgram("zabY abX abX zab", 1), "Y");  // four tokens agree there, elsewhere three
  EXPECT_EQ(ByNgram("abX abY ab", 1), "Y") << "the newest of equals";
  EXPECT_EQ(ByNgram("abcd", 4), "") << "nothing repeats";
  EXPECT_EQ(ByNgram("a", 4), "");
  EXPECT_EQ(ByNgram("", 4), "");
}

TEST(NgramLookupTest, ADraftIsPartOfTheContextAndNotOfTheText) {
  EXPECT_EQ(ByNgram("one two one", 8), " two one");
  EXPECT_EQ(ByNgram("xyxyxy", 7), "xyxyxyx") << "a loop goes on";
}

TEST(NgramLookupTest, OrdersAndHistoryAreLimited) {
  EXPECT_EQ(ByNgram("abX zb", 1, {.least_order = 1}), "X");
  EXPECT_EQ(ByNgram("abX zb", 1, {.least_order = 2}), "");
  EXPECT_EQ(ByNgram("abX-------ab", 1, {.history = 10}), "");
  EXPECT_EQ(ByNgram("abX-------ab", 1, {.history = 12}), "X");
}

// The rule in plain words, without any bound on the time.
std::vector<int32_t> NgramReference(std::vector<int32_t> text, uint32_t max_tokens,
                                    const NgramOptions& options) {
  if (text.size() > options.history) text.erase(text.begin(), text.end() - options.history);
  std::vector<int32_t> context = text;
  std::vector<int32_t> draft;
  while (draft.size() < max_tokens) {
    int32_t next = -1;
    for (uint32_t order = options.most_order; order >= options.least_order && next < 0; --order) {
      if (context.size() < order) continue;
      std::map<int32_t, std::pair<int, size_t>> found;  // count, newest place
      for (size_t at = order; at < text.size(); ++at) {
        if (!std::equal(context.end() - order, context.end(), text.begin() + at - order)) continue;
        ++found[text[at]].first;
        found[text[at]].second = at;
      }
      std::pair<int, size_t> best = {0, 0};
      for (const auto& [token, rank] : found) {
        if (rank > best) {
          best = rank;
          next = token;
        }
      }
    }
    if (next < 0) break;
    draft.push_back(next);
    context.push_back(next);
  }
  return draft;
}

TEST(NgramLookupTest, AgreesWithTheRule) {
  std::mt19937_64 random(1);
  for (int repeat = 0; repeat < 2000; ++repeat) {
    // So few places agree that none is left out.
    const std::vector<int32_t> text = RandomText(random() % 100, 2 + random() % 6, random);
    const NgramOptions options = {.least_order = 1 + static_cast<uint32_t>(random() % 2),
                                  .most_order = 2 + static_cast<uint32_t>(random() % 4),
                                  .history = 20 + static_cast<uint32_t>(random() % 40)};
    EXPECT_EQ(FindByNgram(text, 8, options).token_ids, NgramReference(text, 8, options));
  }
}

TEST(MatchIndexTest, FindsTheLongestOfTheNewestPlaces) {
  std::mt19937_64 random(2);
  for (int repeat = 0; repeat < 500; ++repeat) {
    const std::vector<int32_t> text = RandomText(2 + random() % 60, 4, random);
    MatchIndex index(text.size());
    while (index.size() < text.size()) index.Extend(text, 1 + random() % 7);
    const TextMatch found = index.Longest(text, text, text.size());
    TextMatch expected;
    for (uint32_t next = 1; next < text.size(); ++next) {
      const uint32_t length = CommonEnd(std::span(text).first(next), text, MatchIndex::kMostLength);
      if (length >= 2 && length >= expected.length) expected = {next, length};
    }
    EXPECT_EQ(found.next, expected.next);
    EXPECT_EQ(found.length, expected.length);
  }
}

TEST(MatchIndexTest, MemoryIsBoundedAndOldTextIsForgotten) {
  std::mt19937_64 random(3);
  std::vector<int32_t> text = RandomText(4 * MatchIndex::kWindow, 50000, random);
  std::copy_n(text.begin(), 8, text.end() - 8);  // stands at the beginning only
  MatchIndex index(text.size());
  index.Extend(text, text.size());
  EXPECT_LE(index.memory_bytes(), 512u << 10);
  EXPECT_EQ(index.Longest(text, text, text.size()).length, 0u);
  std::copy_n(text.end() - 1000, 8, text.end() - 8);
  MatchIndex again(text.size());
  again.Extend(text, text.size());
  EXPECT_EQ(again.Longest(text, text, text.size()).next, text.size() - 992);
}

TEST(SuffixLookupTest, CopiesWhatFollowed) {
  const std::vector<int32_t> text = Letters("the cat sat on the mat. the cat s");
  SuffixLookup lookup(text.size());
  (void)lookup.Advance(text, text.size());
  const LookupDraft draft = lookup.Find(text, 9);
  EXPECT_EQ(Text(draft.token_ids), "at on the");
  EXPECT_EQ(draft.match_length, 9u);
}

TEST(SuffixLookupTest, FollowsAPlaceForAsLongAsTheTextGoesOnLikeIt) {
  const std::string once = "0123456789abcdefghijklmnopqrstuvwxyz";
  std::string text = once + once.substr(0, 2);
  SuffixLookup lookup(200);
  for (size_t size = 1; size <= text.size(); ++size) {
    (void)lookup.Advance(Letters(text.substr(0, size)), 10);
  }
  for (size_t i = 2; i < 36; ++i) {
    const LookupDraft draft = lookup.Find(Letters(text), 1);
    ASSERT_THAT(draft.token_ids, ElementsAre(once[i]));
    EXPECT_EQ(draft.match_length, i);
    text += once[i];
    (void)lookup.Advance(Letters(text), 10);
  }
}

TEST(SuffixLookupTest, ALoopGoesOnBeyondTheEnd) {
  const std::vector<int32_t> text = Letters("xyzxyzxyz");
  SuffixLookup lookup(text.size());
  (void)lookup.Advance(text, 100);
  EXPECT_EQ(Text(lookup.Find(text, 8).token_ids), "xyzxyzxy");
}

TEST(SuffixLookupTest, SaysNothingUntilItHasTheWholeText) {
  const std::vector<int32_t> text = Letters("abcabcabcabc");
  SuffixLookup lookup(text.size());
  (void)lookup.Advance(text, 7);
  EXPECT_THAT(lookup.Find(text, 3).token_ids, IsEmpty());
  (void)lookup.Advance(text, 7);
  EXPECT_EQ(Text(lookup.Find(text, 3).token_ids), "abc");
}

TEST(PredictionLookupTest, FollowsThePredictionFromItsBeginning) {
  PredictionLookup lookup(Letters("int main() { return 0; }"));
  (void)lookup.Advance({}, 100);
  EXPECT_EQ(Text(lookup.Find({}, 8).token_ids), "int main");
  const std::vector<int32_t> output = Letters("int main() {");
  (void)lookup.Advance(output, 100);
  EXPECT_EQ(Text(lookup.Find(output, 100).token_ids), " return 0; }");
}

TEST(PredictionLookupTest, FindsItsPlaceAgainAfterADifference) {
  PredictionLookup lookup(Letters("let count = 1; print(count);"));
  std::string text = "let total = 1; ";
  (void)lookup.Advance(Letters(text.substr(0, 5)), 100);  // "let t"
  EXPECT_THAT(lookup.Find(Letters(text.substr(0, 5)), 4).token_ids, IsEmpty());
  (void)lookup.Advance(Letters(text), 100);
  EXPECT_EQ(Text(lookup.Find(Letters(text), 6).token_ids), "print(");
}

TEST(PredictionLookupTest, EndsWithThePrediction) {
  PredictionLookup lookup(Letters("abc"));
  (void)lookup.Advance(Letters("abc"), 100);
  EXPECT_THAT(lookup.Find(Letters("abc"), 4).token_ids, IsEmpty());
}

TEST(RequestLookupsTest, TheLongestMatchIsUsed) {
  LookupPriors priors;
  const std::vector<int32_t> prompt = Letters("a long phrase that comes again: ");
  std::vector<int32_t> tokens = prompt;
  RequestLookups lookups(AllLookups(), {}, AcceptanceMode::kGreedy, prompt.size(), 200,
                         Letters("xx a long tale"), &priors);
  EXPECT_EQ(lookups.Advance(tokens, 1000), prompt.size() + 14);
  EXPECT_EQ(lookups.Find(tokens, 4).front().drafter, Drafter::kPrediction);
  for (const char c : std::string("a long ph")) tokens.push_back(c);
  EXPECT_EQ(lookups.Advance(tokens, 1000), 2u * 9);
  const LookupDraft draft = lookups.Find(tokens, 4).front();
  EXPECT_EQ(draft.drafter, Drafter::kSuffix);
  EXPECT_EQ(Text(draft.token_ids), "rase");
}

// The paths of a draft that end at a token without children.
std::vector<std::string> Paths(const LookupDraft& draft) {
  std::vector<std::string> paths;
  std::vector<std::string> all;
  for (size_t i = 0; i < draft.token_ids.size(); ++i) {
    const int32_t parent = draft.ParentOf(i);
    all.push_back((parent < 0 ? "" : all[static_cast<size_t>(parent)]) +
                  static_cast<char>(draft.token_ids[i]));
    bool is_leaf = true;
    for (size_t j = i + 1; j < draft.token_ids.size(); ++j) {
      is_leaf = is_leaf && draft.ParentOf(j) != static_cast<int32_t>(i);
    }
    if (is_leaf) paths.push_back(all.back());
  }
  return paths;
}

TEST(SuffixLookupTest, OffersATreeWhereTheTextWentOnInSeveralWays) {
  const std::vector<int32_t> text = Letters("the cat sat. the cow ran. the c");
  SuffixLookup lookup(text.size());
  (void)lookup.Advance(text, 1000);
  const LookupDraft chain = lookup.Find(text, 4);
  EXPECT_EQ(Text(chain.token_ids), "ow r") << "the newest of equal matches";
  EXPECT_THAT(chain.parents, IsEmpty());
  // The match ". the c" of the second place is longer than that of the first.
  EXPECT_THAT(Paths(lookup.Find(text, {4, 8})), ::testing::UnorderedElementsAre("ow r", "at s"));
  EXPECT_THAT(Paths(lookup.Find(text, {2, 8})), ::testing::UnorderedElementsAre("ow", "at"));
}

TEST(RetrievalLookupTest, ATreeServesAlongTheWayThatTheTextTook) {
  RetrievalLookup lookup;
  LookupDraft tree = Retrieved("abcde", 3);  // a and b begin, c and d follow b, and e follows d
  tree.parents = {-1, -1, 1, 1, 3};
  lookup.OnSearch(5);
  lookup.OnFound(5, tree);
  const std::vector<int32_t> before = Letters("12345");
  EXPECT_EQ(Text(lookup.Find(before, {8, 8}).token_ids), "abcde");
  EXPECT_EQ(Text(lookup.Find(before, 8).token_ids), "a") << "the chain of first children";
  EXPECT_THAT(Paths(lookup.Find(before, {2, 8})), ::testing::ElementsAre("a", "bc", "bd"));
  const LookupDraft after = lookup.Find(Letters("12345b"), {8, 8});
  EXPECT_THAT(Paths(after), ::testing::ElementsAre("c", "de"));
  EXPECT_EQ(after.match_length, 4u);
  EXPECT_EQ(Text(lookup.Find(Letters("12345bd"), {8, 8}).token_ids), "e");
  EXPECT_THAT(lookup.Find(Letters("12345c"), {8, 8}).token_ids, IsEmpty());
}

TEST(RecyclingLookupTest, DraftsTheFavoritesOfFavorites) {
  RecyclingLookup lookup;
  EXPECT_THAT(lookup.Find(Letters("xa"), {4, 8}).token_ids, IsEmpty()) << "nothing is known";
  EXPECT_EQ(lookup.memory_bytes(), 0u);
  lookup.Learn('a', Letters("bc"));
  lookup.Learn('b', Letters("de"));
  const LookupDraft tree = lookup.Find(Letters("xa"), {2, 8});
  EXPECT_EQ(tree.drafter, Drafter::kRecycling);
  EXPECT_THAT(Paths(tree), ::testing::UnorderedElementsAre("bd", "be", "c"));
  EXPECT_EQ(Text(lookup.Find(Letters("xa"), 4).token_ids), "bd") << "a chain of first favorites";
  EXPECT_EQ(Text(lookup.Find(Letters("xa"), {1, 8}).token_ids), "bc");
  EXPECT_THAT(lookup.Find(Letters("ax"), {4, 8}).token_ids, IsEmpty());
  lookup.Learn('a', Letters("z"));
  EXPECT_EQ(Text(lookup.Find(Letters("xa"), {4, 8}).token_ids), "z") << "the newest count";
  EXPECT_LE(lookup.memory_bytes(), 160u << 10);
}

TEST(RecyclingLookupTest, MostTokensHaveAnEntryOfTheirOwn) {
  RecyclingLookup lookup;
  for (int32_t id = 0; id < 2048; ++id) lookup.Learn(id, std::vector<int32_t>{id + 1});
  int num_known = 0;
  for (int32_t id = 0; id < 2048; ++id) {
    num_known += lookup.Find(std::vector<int32_t>{id}, 1).token_ids.empty() ? 0 : 1;
  }
  EXPECT_GT(num_known, 1800);
}

TEST(RecyclingLookupTest, ALoopIsAChainOfAnyLength) {
  RecyclingLookup lookup;
  lookup.Learn('a', Letters("b"));
  lookup.Learn('b', Letters("a"));
  EXPECT_EQ(Text(lookup.Find(Letters("a"), 7).token_ids), "bababab");
  EXPECT_EQ(Text(lookup.Find(Letters("a"), {7, 16}).token_ids), "bababab");
}

TEST(RequestLookupsTest, WhatIsExpectedToGiveMoreIsUsed) {
  LookupPriors priors;
  DrafterSet drafters(Drafter::kSuffix);
  drafters.Add(Drafter::kRecycling);
  const std::vector<int32_t> text = Letters("a long text that goes on. a long ");
  RequestLookups lookups(drafters, {}, AcceptanceMode::kGreedy, text.size(), 99, {}, &priors);
  (void)lookups.Advance(text, 1000);
  lookups.Learn(' ', Letters("xy"));
  EXPECT_EQ(lookups.Find(text, {4, 16}).front().drafter, Drafter::kSuffix);
  for (int i = 0; i < 40; ++i) lookups.Observe(Drafter::kSuffix, 8, 4, JudgedChain(4, 0));
  EXPECT_EQ(lookups.Find(text, {4, 16}).front().drafter, Drafter::kRecycling);
  EXPECT_GT(lookups.memory_bytes(), 128u << 10);
  EXPECT_EQ(lookups.Find(text, {4, 16}).back().drafter, Drafter::kSuffix);
}

TEST(LookupDraftTest, AreSortedByTheChancesOfTheirTokens) {
  AcceptancePrior prior;
  AcceptanceEstimate estimate(&prior);
  // First children are accepted in half of the cases, and second ones in the other half.
  for (int round = 0; round < 200; ++round) {
    estimate.Observe(std::vector<JudgedPosition>{{.num_children = 2, .accepted = round % 2}});
  }
  LookupDraft draft = Retrieved("abcd", 3);  // b follows a, c is its sibling, and d that of a
  draft.parents = {-1, 0, 0, -1};
  SortByChance(estimate, &draft);
  EXPECT_EQ(Text(draft.token_ids).substr(2, 2), "bc");
  EXPECT_NEAR(draft.chances[0], 0.5, 0.1);
  EXPECT_NEAR(draft.chances[1], 0.5, 0.1);
  EXPECT_NEAR(draft.chances[3], 0.25, 0.1);
  for (const size_t size : {1, 2, 3}) {
    LookupDraft part = draft;
    part.Keep(size);
    EXPECT_EQ(part.token_ids.size(), size);
    EXPECT_EQ(part.chances.size(), size);
    for (size_t i = 0; i < part.parents.size(); ++i) {
      EXPECT_LT(part.parents[i], static_cast<int32_t>(i));
    }
  }
  // With all tokens, the likeliest path comes first.
  draft.PutPathsTogether();
  EXPECT_EQ(Text(draft.token_ids), "abcd");
  EXPECT_THAT(draft.parents, ::testing::ElementsAre(-1, 0, 0, -1));
}

// If siblings changed places, what is measured of the second one would be taken for the first one.
TEST(LookupDraftTest, SiblingsKeepTheirOrder) {
  AcceptancePrior prior;
  AcceptanceEstimate estimate(&prior);
  for (int round = 0; round < 200; ++round) {
    estimate.Observe(std::vector<JudgedPosition>{{.num_children = 3, .accepted = 1}});
  }
  ASSERT_GT(estimate.OfSibling(1), estimate.Conditional(0));
  LookupDraft draft = Retrieved("abc", 3);
  draft.parents = {-1, -1, -1};
  SortByChance(estimate, &draft);
  EXPECT_EQ(Text(draft.token_ids), "abc");
  EXPECT_EQ(draft.chances[1], draft.chances[0]);
}

TEST(RequestLookupsTest, ALongChainIsWorthMoreThanASmallTree) {
  LookupPriors priors;
  const std::vector<int32_t> text = Letters("the cow ran home. the cat sat here. the c");
  RequestLookups lookups(DrafterSet(Drafter::kSuffix), {}, AcceptanceMode::kGreedy, text.size(), 99,
                         {}, &priors);
  (void)lookups.Advance(text, 1000);
  for (const uint32_t nodes : {0, 1, 2, 4}) {
    const LookupDraft draft = lookups.Find(text, {12, nodes}).front();
    EXPECT_EQ(Text(draft.token_ids), "at sat here.") << nodes << " nodes";
    EXPECT_THAT(draft.parents, IsEmpty());
  }
  const LookupDraft tree = lookups.Find(text, {12, 16}).front();
  EXPECT_EQ(tree.token_ids.size(), 16u);
  EXPECT_FALSE(tree.parents.empty());
  for (size_t i = 1; i < tree.chances.size(); ++i) EXPECT_LE(tree.chances[i], tree.chances[i - 1]);
}

TEST(RequestLookupsTest, AcceptanceIsLearnedByKindAndMatch) {
  LookupPriors priors;
  const auto make = [&priors](AcceptanceMode mode) {
    return RequestLookups(AllLookups(), {}, mode, 10, 90, {}, &priors);
  };
  const auto chance = [](const RequestLookups& lookups, uint32_t match_length) {
    LookupDraft draft;
    draft.match_length = match_length;
    return lookups.EstimateOf(draft).Conditional(0);
  };
  RequestLookups lookups = make(AcceptanceMode::kGreedy);
  for (int i = 0; i < 40; ++i) {
    lookups.Observe(Drafter::kSuffix, 40, 4, JudgedChain(4, 4));
    lookups.Observe(Drafter::kSuffix, 2, 4, JudgedChain(4, 0));
  }
  EXPECT_GT(chance(lookups, 17), 0.9);
  EXPECT_LT(chance(lookups, 3), 0.1);
  const RequestLookups later = make(AcceptanceMode::kGreedy);
  EXPECT_GT(chance(later, 17), 0.9);
  EXPECT_LT(chance(later, 3), 0.3);
  EXPECT_LT(chance(make(AcceptanceMode::kSampled), 17), 0.9) << "another mode";
}

// Drafts of `drafter` that are passed over until one is tried, and that one.
int DraftsToTrial(RequestLookups* lookups, const LookupDraft& draft) {
  int drafts = 1;
  while (!lookups->IsDueForTrial(draft)) ++drafts;
  lookups->OnTrial(draft, true);
  return drafts;
}

TEST(RequestLookupsTest, ADraftIsTriedAtOnceAndThenLessAndLessOftenWhileItFails) {
  LookupPriors priors;
  RequestLookups lookups(AllLookups(), {}, AcceptanceMode::kGreedy, 10, 90, {}, &priors);
  LookupDraft draft;
  draft.match_length = 20;
  EXPECT_EQ(DraftsToTrial(&lookups, draft), 1);
  lookups.Observe(draft.drafter, draft.match_length, 4, JudgedChain(4, 4));
  EXPECT_EQ(DraftsToTrial(&lookups, draft), 9);
  for (int i = 0; i < 10; ++i) {
    lookups.Observe(draft.drafter, draft.match_length, 4, JudgedChain(4, 0));
  }
  (void)DraftsToTrial(&lookups, draft);
  EXPECT_EQ(DraftsToTrial(&lookups, draft), 129);
  draft.match_length = 2;
  EXPECT_EQ(DraftsToTrial(&lookups, draft), 1) << "another class";
  for (int i = 0; i < 8 * 4; ++i) ASSERT_FALSE(lookups.IsDueForTrial(draft, 4)) << i;
  EXPECT_TRUE(lookups.IsDueForTrial(draft, 4)) << "four slots wait for its rows";
  lookups.OnTrial(draft, false);
  EXPECT_EQ(DraftsToTrial(&lookups, draft), 17) << "the controller did not use it";
}

TEST(RequestLookupsTest, ADraftThatFailsInMostRequestsIsTriedAtOnceInFewOfThem) {
  LookupPriors priors;
  LookupDraft draft;
  draft.match_length = 20;
  // Returns in how many of 32 requests a draft is tried at once. Each trial succeeds, or fails.
  const auto tried_at_once = [&](AcceptanceMode mode, bool succeeds) {
    int num = 0;
    for (int i = 0; i < 32; ++i) {
      RequestLookups lookups(AllLookups(), {}, mode, 10, 90, {}, &priors);
      const int drafts = DraftsToTrial(&lookups, draft);
      num += drafts == 1 ? 1 : 0;
      EXPECT_LE(drafts, 129) << "each long request tries it";
      lookups.Observe(draft.drafter, draft.match_length, 4, JudgedChain(4, succeeds ? 4 : 0));
      lookups.Observe(draft.drafter, draft.match_length, 4, JudgedChain(4, succeeds ? 0 : 4));
    }
    return num;
  };
  EXPECT_EQ(tried_at_once(AcceptanceMode::kGreedy, true), 32);
  EXPECT_LT(tried_at_once(AcceptanceMode::kGreedy, false), 25) << "what is learned comes late";
  EXPECT_EQ(tried_at_once(AcceptanceMode::kGreedy, false), 32 / 8);
  EXPECT_EQ(tried_at_once(AcceptanceMode::kSampled, true), 32) << "another mode";
  EXPECT_GT(tried_at_once(AcceptanceMode::kGreedy, true), 24) << "it succeeds again";
}

TEST(RequestLookupsTest, RequestsWithOneDrafterDoNotLearnFromThoseWithSeveral) {
  LookupPriors priors;
  const auto request_with = [&](bool is_alone) {
    DrafterSet drafters(Drafter::kEagle);
    if (!is_alone) drafters.Add(Drafter::kModel);
    return RequestLookups(drafters, {}, AcceptanceMode::kGreedy, 10, 90, {}, &priors);
  };
  // Beside a draft model, proposals gain nothing.
  RequestLookups beside_model = request_with(/*is_alone=*/false);
  for (int i = 0; i < 200; ++i) beside_model.self()->OnRound({.gained = 0, .cost = 0.5});
  EXPECT_LT(priors.OfSelf(AcceptanceMode::kGreedy, /*is_alone=*/false).net_gain[1], -0.3);
  // Where they gain, a request alone asks in each round.
  RequestLookups alone = request_with(/*is_alone=*/true);
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(alone.self()->IsWanted(AskingPlace::kElsewhere)) << i;
    alone.self()->OnRound({.gained = 2, .cost = 0.5});
  }
}

TEST(RequestLookupsTest, EventsTakeOverNoMoreThanTheyMay) {
  LookupPriors priors;
  const std::vector<int32_t> tokens = Letters("abcabcabcabcabcabcabc");
  RequestLookups lookups(AllLookups(), {}, AcceptanceMode::kGreedy, 10, 90, Letters("abcabcabc"),
                         &priors);
  EXPECT_EQ(lookups.num_behind(tokens), 21u + 11 + 9);
  size_t taken = 0;
  while (lookups.num_behind(tokens) > 0) {
    const size_t now = lookups.Advance(tokens, 4);
    ASSERT_GT(now, 0u);
    ASSERT_LE(now, 4u);
    taken += now;
  }
  EXPECT_EQ(taken, 21u + 11 + 9);
}

TEST(RequestLookupsTest, TheMemoryOfAThousandStreamsIsStated) {
  LookupPriors priors;
  std::mt19937_64 random(4);
  const std::vector<int32_t> text = RandomText(4096, 32000, random);
  RequestLookups lookups(AllLookups(), {}, AcceptanceMode::kSampled, text.size() - 256, 256, {},
                         &priors);
  (void)lookups.Advance(text, text.size());
  EXPECT_LE(lookups.memory_bytes(), 48u << 10)
      << "docs/drafters.md: 48 MB for 1,000 streams of 4,096";
}

}  // namespace
}  // namespace tandem
