// Parses protobuf messages from bytes that are mostly invalid, without a line on standard error for
// each.
#ifndef TANDEM_TESTS_FUZZ_PARSE_H_
#define TANDEM_TESTS_FUZZ_PARSE_H_

#include <google/protobuf/message_lite.h>
#include <google/protobuf/stubs/logging.h>

#include <string>
#include <string_view>

namespace tandem::fuzz {

inline bool Parse(std::string_view bytes, google::protobuf::MessageLite* message) {
  const google::protobuf::LogSilencer silent;
  return message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

// Keeps the fields that were read before a fault.
inline void Merge(std::string_view bytes, google::protobuf::MessageLite* message) {
  const google::protobuf::LogSilencer silent;
  message->MergeFromString(std::string(bytes));
}

}  // namespace tandem::fuzz

#endif  // TANDEM_TESTS_FUZZ_PARSE_H_
