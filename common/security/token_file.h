// The tokens by which a server knows who may do what.
#ifndef TANDEM_COMMON_SECURITY_TOKEN_FILE_H_
#define TANDEM_COMMON_SECURITY_TOKEN_FILE_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/security/operator_file.h"

namespace tandem {

// Each role may do everything that the roles before it may do.
enum class Role : uint8_t { kNone, kClient, kAdmin };

struct Token {
  Role role = Role::kNone;
  std::string text;
};

inline constexpr size_t kMinTokenBytes = 16;
inline constexpr size_t kMaxTokenBytes = 512;
inline constexpr size_t kMaxTokens = 1024;

// Parses lines of the form `client TOKEN` or `admin TOKEN`. Empty lines and lines that begin with #
// do not count. A token consists of the characters that a Bearer token may have (RFC 6750).
// INVALID_ARGUMENT: the message names the number of a bad line and never its contents, or says that
// there is no token.
absl::StatusOr<std::vector<Token>> ParseTokens(std::string_view text);

// Returns the first token of a file, for a client that shows it. INVALID_ARGUMENT: the message
// names `flag` and the path.
absl::StatusOr<std::string> FirstTokenOf(const std::string& flag, const std::string& path);

// A file of tokens that is read again when it changes. If it is missing or malformed then, the
// earlier tokens stay and the log says why, once. Only digests of the tokens are kept. Thread-safe.
class TokenFile {
 public:
  // INVALID_ARGUMENT: the message names --token-file and the path. The file looks for a change when
  // a caller comes, at most once in `look_seconds`.
  static absl::StatusOr<std::shared_ptr<TokenFile>> Open(const std::string& path,
                                                         double look_seconds = 1);

  // Returns the role of a caller that shows `token`. Takes the same time for every token of one
  // length.
  Role RoleOf(std::string_view token);

 private:
  using Digest = std::array<uint8_t, 32>;
  struct Entry {
    Digest digest;
    Role role;
  };
  using Clock = std::chrono::steady_clock;

  TokenFile(std::string path, double look_seconds)
      : path_(std::move(path)), look_seconds_(look_seconds) {}
  static Digest DigestOf(std::string_view token);
  absl::Status Read();
  void ReadIfChanged();

  const std::string path_;
  const std::chrono::duration<double> look_seconds_;
  std::mutex mutex_;
  std::vector<Entry> entries_;
  std::optional<FileStamp> stamp_;  // stamp of the file when it was read last
  std::string complaint_;           // the last complaint, which the log does not repeat
  Clock::time_point looked_at_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_SECURITY_TOKEN_FILE_H_
