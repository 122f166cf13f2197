// The file that the answers of a batch are written to.
#ifndef TANDEM_SERVICES_CLI_BATCH_BATCH_OUTPUT_H_
#define TANDEM_SERVICES_CLI_BATCH_BATCH_OUTPUT_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ring/unique_fd.h"

namespace tandem::cli {

// The file that takes the place of `output` when lines must be removed from it. Whatever has that
// name is deleted then.
std::string BatchReplacementPath(const std::string& output);

// Each answer is one line, which is written at once. Any thread may append. A crash of the machine
// costs the answers of about the last second.
class BatchOutput {
 public:
  // Opens the file of an earlier run, or makes a new one. Of an earlier run, answers that succeeded
  // stay. Others, and a last line that was only half written, are removed, because their lines are
  // sent again. INVALID_ARGUMENT: the file has something else than answers, or cannot be written.
  // FAILED_PRECONDITION: another run writes to it.
  static absl::StatusOr<std::unique_ptr<BatchOutput>> Open(const std::string& path);
  BatchOutput(const BatchOutput&) = delete;
  BatchOutput& operator=(const BatchOutput&) = delete;

  // The custom_ids of the answers that the file had at the start.
  const std::unordered_set<std::string>& answered() const { return answered_; }

  // UNAVAILABLE: the disk is full, or the like. The file then has nothing of the line, and each
  // later call returns the same.
  absl::Status Append(const std::string& line);
  // Waits until everything is on the disk.
  absl::Status Sync();

 private:
  explicit BatchOutput(std::string path) : path_(std::move(path)) {}

  // Opens the file with its lock.
  absl::Status OpenLocked();
  // Reads the answers of an earlier run. `*kept` gets the lines that stay.
  absl::Status ReadEarlier(std::string* kept, bool* is_clean);
  // Replaces the file by one with these lines.
  absl::Status Rewrite(const std::string& lines);

  const std::string path_;
  UniqueFd file_;
  std::unordered_set<std::string> answered_;
  std::mutex mutex_;
  absl::Status status_;  // not OK: the first write that failed
  std::chrono::steady_clock::time_point synced_ = std::chrono::steady_clock::now();
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BATCH_BATCH_OUTPUT_H_
