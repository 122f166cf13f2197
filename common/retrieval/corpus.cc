#include "common/retrieval/corpus.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace tandem {

absl::StatusOr<std::shared_ptr<const RetrievalIndex>> OpenCorpus(const std::string& path,
                                                                 const Tokenizer& tokenizer) {
  absl::StatusOr<std::unique_ptr<RetrievalIndex>> index = RetrievalIndex::Open(path);
  if (!index.ok()) {
    return absl::Status(index.status().code(),
                        absl::StrCat("--retrieval: ", index.status().message()));
  }
  if ((*index)->vocabulary() != tokenizer.Fingerprint()) {
    return InvalidArgument("--retrieval: " + path +
                           " was built with the tokenizer of another model (tandem index build "
                           "--target DIR takes the tokenizer of the target)");
  }
  return std::shared_ptr<const RetrievalIndex>(*std::move(index));
}

absl::StatusOr<std::shared_ptr<const RetrievalIndex>> OpenCorpus(
    const std::string& path, const std::filesystem::path& target) {
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, Tokenizer::Load(target));
  return OpenCorpus(path, *tokenizer);
}

}  // namespace tandem
