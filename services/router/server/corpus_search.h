// Searches the corpus of the retrieval drafter on a thread of its own.
#ifndef TANDEM_SERVICES_ROUTER_SERVER_CORPUS_SEARCH_H_
#define TANDEM_SERVICES_ROUTER_SERVER_CORPUS_SEARCH_H_

#include <grpcpp/completion_queue.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/retrieval/retrieval_index.h"
#include "services/router/client_calls/background_work.h"
#include "services/router/engine/engine_command.h"
#include "services/router/engine/rounds/lookup_round.h"

namespace tandem {

class CorpusSearch {
 public:
  // Called on the polling thread.
  using OnAnswer = std::function<void(const SearchCorpus& search, std::vector<CorpusAnswer>)>;

  // Answers have ids below `vocabulary_size`.
  CorpusSearch(std::shared_ptr<const RetrievalIndex> index, uint32_t vocabulary_size,
               grpc::CompletionQueue* queue, OnAnswer on_answer);

  // Begins the search. Returns false, and there is no answer, if BackgroundWork::kMaxJobs searches
  // are under way or the thread ends.
  bool Run(SearchCorpus search);

  // As those of BackgroundWork: a search may hang if the disk does.
  void Abandon() { work_.Abandon(); }
  bool quiet() const { return work_.quiet(); }

 private:
  const std::shared_ptr<const RetrievalIndex> index_;
  const uint32_t vocabulary_size_;
  const OnAnswer on_answer_;
  BackgroundWork work_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_SERVER_CORPUS_SEARCH_H_
