// The file that a batch is read from.
#ifndef TANDEM_SERVICES_CLI_BATCH_BATCH_INPUT_H_
#define TANDEM_SERVICES_CLI_BATCH_BATCH_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/cli/batch/batch_line.h"

namespace tandem::cli {

// The lines stay in the file until they are needed. Any thread may read them.
class BatchInput {
 public:
  struct Entry {
    int64_t number;  // the line's, from 1
    int64_t offset;  // in the file
    size_t size;
    std::string custom_id;
  };
  struct Problem {
    int64_t number;
    std::string message;
  };

  // Reads the whole file once. INVALID_ARGUMENT: the file cannot be read.
  static absl::StatusOr<std::unique_ptr<BatchInput>> Open(const std::string& path);
  ~BatchInput();
  BatchInput(const BatchInput&) = delete;
  BatchInput& operator=(const BatchInput&) = delete;

  // The lines that can be sent, and those that cannot: they are malformed, or have a custom_id that
  // an earlier line has. Blank lines are in neither.
  const std::vector<Entry>& entries() const { return entries_; }
  const std::vector<Problem>& problems() const { return problems_; }

  // An error says that the file has changed since.
  absl::StatusOr<BatchLine> Read(const Entry& entry) const;

 private:
  explicit BatchInput(int file) : file_(file) {}

  const int file_;
  std::vector<Entry> entries_;
  std::vector<Problem> problems_;
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BATCH_BATCH_INPUT_H_
