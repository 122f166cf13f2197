// The corpus of a server: an index that was built with the tokenizer of its target.
#ifndef TANDEM_COMMON_RETRIEVAL_CORPUS_H_
#define TANDEM_COMMON_RETRIEVAL_CORPUS_H_

#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/retrieval/retrieval_index.h"
#include "common/tokenizer/tokenizer.h"

namespace tandem {

// Opens the file of --retrieval. Errors name the flag. INVALID_ARGUMENT also if the index was built
// with another tokenizer.
absl::StatusOr<std::shared_ptr<const RetrievalIndex>> OpenCorpus(const std::string& path,
                                                                 const Tokenizer& tokenizer);
// The same, with the tokenizer of the target in this folder.
absl::StatusOr<std::shared_ptr<const RetrievalIndex>> OpenCorpus(
    const std::string& path, const std::filesystem::path& target);

}  // namespace tandem

#endif  // TANDEM_COMMON_RETRIEVAL_CORPUS_H_
