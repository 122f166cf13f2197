#include "services/gateway/http/request_reader.h"

#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/parser.hpp>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

namespace tandem::gateway {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

// What a buffer may keep between two requests.
constexpr size_t kKeptReaderBytes = 4 << 10;

std::string Text(beast::string_view view) { return {view.data(), view.size()}; }

template <typename Parser>
std::string Header(const Parser& parser, http::field field) {
  const auto found = parser.get().find(field);
  return found == parser.get().end() ? "" : Text(found->value());
}

}  // namespace

struct RequestReader::Impl {
  // A body that grows with what arrives, within the budget of all bodies. Beast's own string body
  // reserves the length that the client announces.
  struct GrowingBody {
    struct value_type {  // NOLINT(readability-identifier-naming): Beast wants this name
      ByteLease lease;
      std::string text;
      bool is_over_budget = false;
    };

    class reader {  // NOLINT(readability-identifier-naming): and this one
     public:
      template <bool is_request, class Fields>
      reader(http::header<is_request, Fields>& /*head*/, value_type& body) : body_(body) {}

      void init(const boost::optional<uint64_t>& /*length*/, error_code& error) { error = {}; }

      template <class Buffers>
      size_t put(const Buffers& buffers, error_code& error) {
        error = {};
        const size_t bytes = beast::buffer_bytes(buffers);
        if (!body_.lease.Take(bytes)) {
          body_.is_over_budget = true;
          error = http::error::buffer_overflow;
          return 0;
        }
        for (const auto part : beast::buffers_range_ref(buffers)) {
          body_.text.append(static_cast<const char*>(part.data()), part.size());
        }
        return bytes;
      }

      void finish(error_code& error) { error = {}; }

     private:
      value_type& body_;
    };
  };
  using Parser = http::request_parser<GrowingBody>;

  explicit Impl(size_t most_bytes) : buffer(most_bytes) {}

  beast::flat_buffer buffer;
  std::optional<Parser> parser;
};

namespace {

// Returns what is wrong with headers that Beast takes, or null. A proxy in front may frame the body
// in another way than Beast, and take a part of it for the next request (RFC 9112, section 11.2).
template <typename Parser>
const char* FaultOfHead(const Parser& parser) {
  const auto& head = parser.get();
  const size_t num_encodings = head.count(http::field::transfer_encoding);
  if (num_encodings > 0) {
    if (head.version() < 11) return "HTTP/1.0 has no transfer-encoding";
    if (num_encodings > 1 || !beast::iequals(head[http::field::transfer_encoding], "chunked")) {
      return "transfer-encoding: the only one that is allowed is chunked";
    }
  }
  if (head.count(http::field::host) > 1) return "host: it is given more than once";
  return nullptr;
}

}  // namespace

RequestReader::RequestReader(const HttpLimits& limits, ByteBudget* budget)
    // Chunks have headers of their own, for which the buffer is the limit.
    : limits_(limits), budget_(budget), impl_(std::make_unique<Impl>(2 * limits.header_bytes)) {}

RequestReader::~RequestReader() = default;

size_t RequestReader::free_bytes() const { return impl_->buffer.max_size() - impl_->buffer.size(); }

void RequestReader::Put(std::string_view bytes) {
  const auto room = impl_->buffer.prepare(bytes.size());
  std::memcpy(room.data(), bytes.data(), bytes.size());
  impl_->buffer.commit(bytes.size());
}

size_t RequestReader::waiting_bytes() const { return impl_->buffer.size(); }

RequestReader::State RequestReader::Fail(int status, std::string message) {
  fault_ = {.status = status, .message = std::move(message)};
  return state_ = State::kFailed;
}

RequestReader::State RequestReader::Parse() {
  if (state_ == State::kWhole || state_ == State::kFailed) return state_;
  if (impl_->buffer.size() == 0) return state_;
  if (!impl_->parser.has_value()) {
    impl_->parser.emplace();
    impl_->parser->header_limit(limits_.header_bytes);
    impl_->parser->body_limit(limits_.body_bytes);
    impl_->parser->get().body().lease = ByteLease(budget_, limits_.share_bytes);
  }
  Impl::Parser& parser = *impl_->parser;
  if (state_ == State::kIdle) state_ = State::kHead;
  parser.eager(state_ == State::kBody);
  error_code error;
  while (impl_->buffer.size() > 0 && !parser.is_done()) {
    try {
      impl_->buffer.consume(parser.put(impl_->buffer.data(), error));
    } catch (const std::exception&) {  // Beast throws if a field has 64 KiB or more
      return Fail(431, "a header is too long");
    }
    if (error) break;
    if (state_ == State::kHead && parser.is_header_done()) {
      if (const char* fault = FaultOfHead(parser); fault != nullptr) return Fail(400, fault);
      OnHead();
      break;
    }
  }
  if (error == http::error::need_more) {
    if (impl_->buffer.size() < impl_->buffer.max_size()) return state_;
    error = state_ == State::kHead ? http::error::header_limit : http::error::bad_chunk_extension;
  }
  if (error == http::error::header_limit) {
    return Fail(431,
                "the headers have more than " + std::to_string(limits_.header_bytes) + " bytes");
  }
  if (error == http::error::body_limit) {
    return Fail(413, "the body has more than " + std::to_string(limits_.body_bytes) + " bytes");
  }
  if (error && parser.get().body().is_over_budget) {
    return Fail(503, "the server holds too many bytes of requests and answers");
  }
  if (error) return Fail(400, "the request is no valid HTTP/1.1: " + error.message());
  if (parser.is_done()) {
    request_.body = std::move(parser.get().body().text);
    parser.get().body().text.clear();
    state_ = State::kWhole;
  }
  return state_;
}

void RequestReader::OnHead() {
  const Impl::Parser& parser = *impl_->parser;
  const std::string target = Text(parser.get().target());
  request_.method = Text(parser.get().method_string());
  request_.path = target.substr(0, target.find('?'));
  request_.host = Header(parser, http::field::host);
  request_.content_type = Header(parser, http::field::content_type);
  request_.authorization = Header(parser, http::field::authorization);
  const auto traceparent = parser.get().find("traceparent");
  if (traceparent != parser.get().end()) request_.traceparent = Text(traceparent->value());
  keeps_alive_ = parser.keep_alive();
  speaks_old_http_ = parser.get().version() < 11;
  expects_continue_ = beast::iequals(parser.get()[http::field::expect], "100-continue");
  state_ = State::kBody;
}

uint64_t RequestReader::body_bytes() const {
  return impl_->parser.has_value() ? impl_->parser->get().body().lease.bytes() : 0;
}

ByteLease RequestReader::TakeLease() { return std::move(impl_->parser->get().body().lease); }

void RequestReader::GiveUp() {
  impl_->parser.reset();
  impl_->buffer.clear();
  impl_->buffer.shrink_to_fit();
  request_ = {};
}

HttpRequest RequestReader::Take() {
  impl_->parser.reset();
  state_ = State::kIdle;
  if (impl_->buffer.size() == 0 && impl_->buffer.capacity() > kKeptReaderBytes) {
    impl_->buffer.shrink_to_fit();
  }
  return std::exchange(request_, {});
}

}  // namespace tandem::gateway
