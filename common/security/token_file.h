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

// Each may do what the ones before it may.
enum class Role : uint8_t { kNone, kClient, kAdmin };

struct Token {
  Role role = Role::kNone;
  std::string text;
};

inline constexpr size_t kMinTokenBytes = 16;
inline constexpr size_t kMaxTokenBytes = 512;
inline constexpr size_t kMaxTokens = 1024;

// Lines `client TOKEN` or `admin TOKEN`; empty ones and those that begin with # do not count. A
// token is of the characters that a Bearer token may have (RFC 6750). INVALID_ARGUMENT names the
// line, and never what is in it; no token at all is one too.
absl::StatusOr<std::vector<Token>> ParseTokens(std::string_view text);

// The first token of a file, for who shows it. INVALID_ARGUMENT names `flag` and the path.
absl::StatusOr<std::string> FirstTokenOf(const std::string& flag, const std::string& path);

// A file of tokens that is read again when it changes. Should it not make sense then, or be gone,
// the tokens stay as they were and the log says why, once. Of tokens only digests are kept.
// Thread-safe.
class TokenFile {
 public:
  // INVALID_ARGUMENT names --token-file and the path. Looks for a change when somebody comes, at
  // most once in `look_seconds`.
  static absl::StatusOr<std::shared_ptr<TokenFile>> Open(const std::string& path,
                                                         double look_seconds = 1);

  // Of who shows `token`. Takes the same time for every token of one length.
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
  std::optional<FileStamp> stamp_;  // of the file when it was read last
  std::string complaint_;  // of the last look, which is not repeated; empty: there was none
  Clock::time_point looked_at_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_SECURITY_TOKEN_FILE_H_
