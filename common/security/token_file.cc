#include "common/security/token_file.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "common/status.h"

namespace tandem {
namespace {

constexpr char kTokenFileFlag[] = "--token-file";
constexpr std::string_view kBlanks = " \t\r";

bool IsTokenCharacter(char c) {
  constexpr std::string_view kOthers = "-._~+/=";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         kOthers.find(c) != std::string_view::npos;
}

// Returns the next word and removes it from `line`.
std::string_view TakeWord(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(kBlanks));
  line.remove_prefix(word.size());
  return word;
}

// Errors never repeat the contents of a line, because a token without a role is still a token.
absl::StatusOr<std::optional<Token>> ParseTokenLine(std::string_view line) {
  const std::string_view role = TakeWord(line);
  if (role.empty() || role.front() == '#') return std::nullopt;
  const std::string_view text = TakeWord(line);
  const std::string_view more = TakeWord(line);
  if ((role != "client" && role != "admin") || text.empty() || !more.empty()) {
    return InvalidArgument("want `client TOKEN` or `admin TOKEN`");
  }
  if (text.size() < kMinTokenBytes || text.size() > kMaxTokenBytes) {
    return InvalidArgument("the token has " + std::to_string(text.size()) + " characters, want " +
                           std::to_string(kMinTokenBytes) + " to " +
                           std::to_string(kMaxTokenBytes));
  }
  if (!std::all_of(text.begin(), text.end(), IsTokenCharacter)) {
    return InvalidArgument("the token has a character that is none of A-Z a-z 0-9 - . _ ~ + / =");
  }
  return Token{role == "admin" ? Role::kAdmin : Role::kClient, std::string(text)};
}

absl::StatusOr<std::vector<Token>> TokensIn(const std::string& text, const std::string& flag,
                                            const std::string& path) {
  auto tokens = ParseTokens(text);
  if (!tokens.ok()) {
    return InvalidArgument(flag + " " + path + ": " + std::string(tokens.status().message()));
  }
  return tokens;
}

}  // namespace

absl::StatusOr<std::vector<Token>> ParseTokens(std::string_view text) {
  std::vector<Token> tokens;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    auto token = ParseTokenLine(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string where = "line " + std::to_string(number) + ": ";
    if (!token.ok()) return InvalidArgument(where + std::string(token.status().message()));
    if (!token->has_value()) continue;
    const auto is_same = [&](const Token& other) { return other.text == (*token)->text; };
    if (std::any_of(tokens.begin(), tokens.end(), is_same)) {
      return InvalidArgument(where + "the file has this token twice");
    }
    if (tokens.size() == kMaxTokens) {
      return InvalidArgument(where + "allowed: at most " + std::to_string(kMaxTokens) + " tokens");
    }
    tokens.push_back(**std::move(token));
  }
  if (tokens.empty()) return InvalidArgument("there is no token in it, so nobody could call");
  return tokens;
}

absl::StatusOr<std::string> FirstTokenOf(const std::string& flag, const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadOperatorFile(flag, path));
  TANDEM_ASSIGN_OR_RETURN(std::vector<Token> tokens, TokensIn(text, flag, path));
  return std::move(tokens.front().text);
}

absl::StatusOr<std::shared_ptr<TokenFile>> TokenFile::Open(const std::string& path,
                                                           double look_seconds) {
  std::shared_ptr<TokenFile> file(new TokenFile(path, look_seconds));
  TANDEM_RETURN_IF_ERROR(file->Read());
  file->looked_at_ = Clock::now();
  return file;
}

TokenFile::Digest TokenFile::DigestOf(std::string_view token) {
  Digest digest{};
  EVP_Digest(token.data(), token.size(), digest.data(), nullptr, EVP_sha256(), nullptr);
  return digest;
}

absl::Status TokenFile::Read() {
  // The stamp is taken before the file is read. A change during the reading is then noticed at the
  // next look.
  const std::optional<FileStamp> stamp = StampOf(path_);
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadOperatorFile(kTokenFileFlag, path_));
  // The stamp is stored only now. A file that could not be read (for lack of a descriptor, for
  // example) is then read again at the next look, even without another change.
  stamp_ = stamp;
  TANDEM_RETURN_IF_ERROR(CheckSecretMode(kTokenFileFlag, path_));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Token> tokens, TokensIn(text, kTokenFileFlag, path_));
  entries_.clear();
  for (const Token& token : tokens) entries_.push_back({DigestOf(token.text), token.role});
  return absl::OkStatus();
}

void TokenFile::ReadIfChanged() {
  const Clock::time_point now = Clock::now();
  if (now - looked_at_ < look_seconds_) return;
  looked_at_ = now;
  if (StampOf(path_) == stamp_) return;
  if (const absl::Status status = Read(); !status.ok()) {
    const std::string complaint(status.message());
    if (complaint != complaint_) spdlog::error("{} (tokens stay as they were)", complaint);
    complaint_ = complaint;
    return;
  }
  complaint_.clear();
  spdlog::info("{} {}: read again, {} tokens", kTokenFileFlag, path_, entries_.size());
}

Role TokenFile::RoleOf(std::string_view token) {
  const Digest digest = DigestOf(token);
  const std::lock_guard<std::mutex> lock(mutex_);
  ReadIfChanged();
  Role role = Role::kNone;
  // The loop compares all entries, so that the time of the answer does not reveal which one
  // matched.
  for (const Entry& entry : entries_) {
    const bool is_it = CRYPTO_memcmp(entry.digest.data(), digest.data(), digest.size()) == 0;
    role = is_it ? entry.role : role;
  }
  return role;
}

}  // namespace tandem
