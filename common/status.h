// Short functions that make and pass on absl::Status. A message names the place, the given value
// and the allowed values.
#ifndef TANDEM_COMMON_STATUS_H_
#define TANDEM_COMMON_STATUS_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// In Debian's build absl::string_view is not std::string_view, so these functions take a
// std::string.
inline absl::Status InvalidArgument(const std::string& message) {
  return absl::InvalidArgumentError(message);
}
inline absl::Status FailedPrecondition(const std::string& message) {
  return absl::FailedPreconditionError(message);
}
inline absl::Status NotFound(const std::string& message) { return absl::NotFoundError(message); }
inline absl::Status ResourceExhausted(const std::string& message) {
  return absl::ResourceExhaustedError(message);
}
inline absl::Status Unavailable(const std::string& message) {
  return absl::UnavailableError(message);
}
inline absl::Status Internal(const std::string& message) { return absl::InternalError(message); }

}  // namespace tandem

#define TANDEM_CONCAT_INNER(a, b) a##b
#define TANDEM_CONCAT(a, b) TANDEM_CONCAT_INNER(a, b)

// Returns from the enclosing function if `expression` is not OK.
#define TANDEM_RETURN_IF_ERROR(expression)         \
  do {                                             \
    absl::Status tandem_status = (expression);     \
    if (!tandem_status.ok()) return tandem_status; \
  } while (false)

// TANDEM_ASSIGN_OR_RETURN(auto x, MakeX());
#define TANDEM_ASSIGN_OR_RETURN(lhs, expression) \
  TANDEM_ASSIGN_OR_RETURN_INNER(TANDEM_CONCAT(tandem_status_or_, __LINE__), lhs, expression)
#define TANDEM_ASSIGN_OR_RETURN_INNER(holder, lhs, expression) \
  auto holder = (expression);                                  \
  if (!holder.ok()) return holder.status();                    \
  lhs = std::move(holder).value()

#endif  // TANDEM_COMMON_STATUS_H_
