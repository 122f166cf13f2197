#include "services/router/server/corpus_search.h"

#include <spdlog/spdlog.h>

#include <mutex>
#include <utility>

namespace tandem {

CorpusSearch::CorpusSearch(std::shared_ptr<const RetrievalIndex> index, uint32_t vocabulary_size,
                           grpc::CompletionQueue* queue, OnAnswer on_answer)
    : index_(std::move(index)),
      vocabulary_size_(vocabulary_size),
      on_answer_(std::move(on_answer)),
      work_(queue) {}

bool CorpusSearch::Run(SearchCorpus search) {
  // Owned by both functions, because an abandoned thread may outlive this object.
  struct Job {
    SearchCorpus search;
    std::vector<CorpusAnswer> answers;
  };
  auto job = std::make_shared<Job>();
  job->search = std::move(search);
  const auto work = [job, index = index_, vocabulary_size = vocabulary_size_] {
    for (const SearchCorpus::Query& query : job->search.queries) {
      absl::StatusOr<RetrievedText> found =
          index->Find(query.context, RetrievalLookup::kWantedTokens, vocabulary_size,
                      RetrievalLookup::kWantedNodes);
      if (!found.ok()) {
        static std::once_flag warned;
        std::call_once(warned, [&] {
          spdlog::warn("the retrieval index finds nothing any more: {}", found.status().ToString());
        });
        found.emplace();
      }
      CorpusAnswer& answer = job->answers.emplace_back();
      answer.slot = query.slot;
      answer.serial = query.serial;
      answer.length = query.length;
      answer.draft = {Drafter::kRetrieval, std::move(found->token_ids), std::move(found->parents),
                      found->match_length};
    }
  };
  return work_.Run(work, [job, this] { on_answer_(job->search, std::move(job->answers)); });
}

}  // namespace tandem
