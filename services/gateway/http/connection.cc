#include "services/gateway/http/connection.h"

#include <poll.h>

#include <algorithm>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <string>
#include <type_traits>
#include <utility>

#include "common/monotonic_seconds.h"
#include "common/status.h"
#include "services/gateway/http/access_entry.h"
#include "services/gateway/http/answer_buffer.h"
#include "services/gateway/http/answer_head.h"
#include "services/gateway/http/deadline.h"
#include "services/gateway/http/request_reader.h"
#include "services/gateway/limits/body_pace.h"

namespace tandem::gateway {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using TlsStream = asio::ssl::stream<tcp::socket>;

constexpr size_t kInboxBytes = 2 << 10;       // for headers, and to notice that a client leaves
constexpr size_t kBodyInboxBytes = 16 << 10;  // while a body arrives
// A client that still sends when it is answered must get the answer, and not a reset. So what it
// sends is read for a while and thrown away.
constexpr double kLingerSeconds = 2;
constexpr uint64_t kLingerBytes = 64 << 20;

constexpr char kTooMuchHeld[] = "the server holds too many bytes of requests and answers";

// Whether the other end has closed its side, or the connection is broken. It also tells if bytes
// are there that nobody has read yet.
bool IsLeft(int descriptor) {
  pollfd state{.fd = descriptor, .events = POLLRDHUP, .revents = 0};
  return poll(&state, 1, 0) > 0 && (state.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

template <typename Stream>
class HttpConnection final : public Connection,
                             public Reply,
                             public std::enable_shared_from_this<HttpConnection<Stream>> {
 public:
  // `stream` has the arguments of the stream's constructor.
  template <typename... Arguments>
  HttpConnection(ConnectionContext& context, std::function<void()> on_closed,
                 std::shared_ptr<asio::ssl::context> tls, Arguments&&... stream)
      : context_(context),
        on_closed_(std::move(on_closed)),
        tls_(std::move(tls)),
        stream_(std::forward<Arguments>(stream)...),
        reader_(context.limits, &context.budget),
        pace_(context.limits),
        read_deadline_(stream_.get_executor(), [this] { OnReadDeadline(); }),
        write_deadline_(stream_.get_executor(), [this] { OnClientSlow(); }) {}
  ~HttpConnection() override { on_closed_(); }
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  void Begin() override {
    asio::dispatch(stream_.get_executor(), [self = this->shared_from_this()] {
      self->read_deadline_.Set(self->limits().request_seconds, self);
      if constexpr (kEncrypted) {
        self->stream_.async_handshake(asio::ssl::stream_base::server,
                                      [self](const error_code& error) {
                                        if (error) return self->CloseNow();
                                        self->Advance();
                                      });
      } else {
        self->Advance();
      }
    });
  }

  void Drain() override {
    asio::post(stream_.get_executor(), [self = this->shared_from_this()] {
      self->draining_ = true;
      const bool is_idle = self->reader_.state() == RequestReader::State::kIdle;
      if (self->phase_ == Phase::kRequest && is_idle) self->CloseNow();
    });
  }

  void Close() override {
    asio::post(stream_.get_executor(),
               [self = this->shared_from_this()] { self->GiveUp("this process ends"); });
  }

  asio::any_io_executor executor() const override {
    return const_cast<Stream&>(stream_).get_executor();
  }

  void Send(HttpAnswer answer) override {
    if (phase_ != Phase::kAnswer) return;
    const uint64_t bytes = answer.body.size();
    if (bytes > collected_bytes_ && !lease_.Take(bytes - collected_bytes_)) {
      answer = context_.service.ErrorAnswer(503, kTooMuchHeld);
    }
    entry_.SetStatus(answer.status);
    keeps_alive_ = keeps_alive_ && !draining_;
    out_.Append(AnswerHead(answer, notes().request_id, keeps_alive_));
    if (!entry_.is_head()) out_.Append(answer.body);
    SetAnswered();
  }

  absl::Status Keep(size_t bytes) override {
    if (collected_bytes_ + bytes > limits().answer_bytes) {
      return ResourceExhausted(
          "the answer has more than " + std::to_string(limits().answer_bytes) +
          " bytes: ask for a stream, for fewer tokens, or for fewer log-probabilities");
    }
    if (!lease_.Take(bytes)) return Unavailable(kTooMuchHeld);
    collected_bytes_ += bytes;
    return absl::OkStatus();
  }

  void BeginStream() override {
    const bool in_pieces = !reader_.speaks_old_http();
    entry_.SetStatus(200);
    keeps_alive_ = keeps_alive_ && in_pieces && !draining_;
    out_.Append(StreamHead(notes().request_id, in_pieces, keeps_alive_));
    out_.BeginBody(in_pieces);
  }

  void Write(std::string_view bytes) override {
    if (phase_ != Phase::kAnswer) return;
    out_.AppendToBody(bytes);
    WriteNow();
    Flush();
  }

  size_t waiting_bytes() const override { return out_.waiting_bytes(); }

  void End() override {
    out_.EndBody();
    keeps_alive_ = keeps_alive_ && !draining_;
    SetAnswered();
  }

  void Break() override {
    keeps_alive_ = false;
    SetAnswered();
  }

  AccessNotes& notes() override { return entry_.notes(); }

 private:
  static constexpr bool kEncrypted = std::is_same_v<Stream, TlsStream>;
  enum class Phase {
    kRequest,  // a request arrives, or none has begun
    kAnswer,   // a request is being answered
    kWriting,  // its answer is complete, and is being written
    kClosing,  // the last answer was written
    kClosed,
  };
  using State = RequestReader::State;

  const HttpLimits& limits() const { return context_.limits; }
  tcp::socket& socket() {
    if constexpr (kEncrypted) {
      return stream_.next_layer();
    } else {
      return stream_;
    }
  }

  bool is_answering() const { return phase_ == Phase::kAnswer || phase_ == Phase::kWriting; }

  void ResizeInbox(size_t size) {
    if (inbox_.size() == size) return;
    inbox_.resize(size);
    inbox_.shrink_to_fit();
  }

  // Reads more, if there is room and no read is under way.
  void Read() {
    if (is_reading_ || phase_ == Phase::kClosed) return;
    if (is_answering() && reader_.waiting_bytes() >= limits().header_bytes) {
      // Without a read, only a look tells that the client has left.
      return read_deadline_.Set(limits().broken_look_seconds, this->shared_from_this());
    }
    const size_t size = std::min(reader_.state() == State::kBody ? kBodyInboxBytes : kInboxBytes,
                                 reader_.free_bytes());
    if (size == 0) return;
    ResizeInbox(size);
    is_reading_ = true;
    stream_.async_read_some(asio::buffer(inbox_),
                            [self = this->shared_from_this()](const error_code& error, size_t n) {
                              self->OnRead(error, n);
                            });
  }

  void OnRead(const error_code& error, size_t count) {
    is_reading_ = false;
    if (phase_ == Phase::kClosed) return;
    if (phase_ == Phase::kClosing) return Linger();
    if (error) return OnClientGone();
    reader_.Put(std::string_view(inbox_.data(), count));
    if (phase_ == Phase::kRequest) {
      Advance();
    } else {
      Read();
    }
  }

  // Goes on with the present request, or with the next one.
  void Advance() {
    while (phase_ == Phase::kRequest) {
      const State state = reader_.Parse();
      if (state == State::kIdle) {
        if (draining_) return CloseNow();
        return Read();
      }
      if (entry_.Begin()) {
        read_deadline_.Set(pace_.Begin(MonotonicSeconds()), this->shared_from_this());
      }
      if (state == State::kFailed) {
        return Refuse(
            context_.service.ErrorAnswer(reader_.fault().status, reader_.fault().message));
      }
      if (state == State::kHead) return Read();
      if (!is_head_checked_) {
        is_head_checked_ = true;
        if (auto refusal = context_.service.Refuse(reader_.request())) {
          return Refuse(*std::move(refusal));
        }
        if (state == State::kBody && reader_.expects_continue()) {
          out_.Append("HTTP/1.1 100 Continue\r\n\r\n");
          Flush();
        }
        if (state == State::kBody) continue;  // a part of the body may be there
      }
      if (state == State::kBody) return Read();
      Dispatch();
    }
  }

  void BeginAnswer() {
    phase_ = Phase::kAnswer;
    read_deadline_.Clear();
    entry_.SetRequest(reader_.request());
    keeps_alive_ = reader_.keeps_alive();
  }

  void Dispatch() {
    BeginAnswer();
    lease_ = reader_.TakeLease();
    HttpRequest request = reader_.Take();
    Read();
    if (request.body.size() < limits().large_body_bytes) return Answer(std::move(request));
    auto waiting = std::make_shared<HttpRequest>(std::move(request));
    context_.large_bodies.Enter([self = this->shared_from_this(), waiting] {
      asio::post(self->stream_.get_executor(), [self, waiting] {
        self->Answer(std::move(*waiting));
        self->context_.large_bodies.Leave();
      });
    });
  }

  void Answer(HttpRequest&& request) {
    if (phase_ != Phase::kAnswer) return;  // the client has left
    std::shared_ptr<Exchange> exchange =
        context_.service.Answer(std::move(request), this->shared_from_this());
    if (phase_ == Phase::kAnswer) exchange_ = std::move(exchange);
  }

  // Answers without a call. A body that is still to come is not told apart from a next request, so
  // the connection then ends.
  void Refuse(HttpAnswer answer) {
    BeginAnswer();
    if (reader_.state() == State::kWhole) {
      reader_.Take();
    } else {
      keeps_alive_ = false;
      reader_.GiveUp();
    }
    Send(std::move(answer));
  }

  void SetAnswered() {
    if (phase_ != Phase::kAnswer) return;
    phase_ = Phase::kWriting;
    exchange_.reset();
    Flush();
  }

  // Writes what the socket takes at once, without a way through the event loop.
  void WriteNow() {
    if constexpr (!kEncrypted) {
      if (out_.is_writing() || !out_.has_more()) return;
      error_code error;
      if (!socket().non_blocking()) socket().non_blocking(true, error);
      const size_t count = socket().write_some(asio::buffer(out_.next()), error);
      entry_.AddBytes(count);
      out_.Skip(count);  // an error comes back from the write that waits
    }
  }

  void Flush() {
    if (out_.is_writing() || phase_ == Phase::kClosed) return;
    if (!out_.has_more()) {
      if (phase_ == Phase::kWriting) OnAnswered();
      return;
    }
    write_deadline_.Set(limits().write_seconds, this->shared_from_this());
    asio::async_write(stream_, asio::buffer(out_.BeginWrite()),
                      [self = this->shared_from_this()](const error_code& error, size_t n) {
                        self->OnWritten(error, n);
                      });
  }

  void OnWritten(const error_code& error, size_t count) {
    out_.AfterWrite();
    if (phase_ == Phase::kClosed) return;
    entry_.AddBytes(count);
    if (error) return GiveUp("the client left");
    write_deadline_.Clear();
    if (const std::shared_ptr<Exchange> exchange = exchange_) exchange->OnWritten();
    if (phase_ != Phase::kClosing) Flush();
  }

  void OnAnswered() {
    entry_.End(context_.service);
    lease_.GiveBack();
    collected_bytes_ = 0;
    if (!keeps_alive_) return CloseGently();
    phase_ = Phase::kRequest;
    is_head_checked_ = false;
    read_deadline_.Set(limits().idle_seconds, this->shared_from_this());
    Advance();
  }

  // The client has closed its side, or the connection is broken.
  void OnClientGone() {
    // An answer that is on its way may still reach a client that only ended its own side.
    if (phase_ == Phase::kWriting) {
      keeps_alive_ = false;
      return;
    }
    GiveUp("the client left");
  }

  void GiveUp(const char* why) {
    if (is_answering()) {
      entry_.SetStatus(499);
      if (notes().detail.empty()) notes().detail = why;
      entry_.End(context_.service);
    }
    const std::shared_ptr<Exchange> exchange = std::exchange(exchange_, nullptr);
    CloseNow();
    if (exchange != nullptr) exchange->OnGone();
  }

  void OnReadDeadline() {
    if (is_answering()) {
      if (IsLeft(socket().native_handle())) return OnClientGone();
      return Read();
    }
    if (phase_ != Phase::kRequest || reader_.state() == State::kIdle) return CloseNow();
    if (const auto seconds = pace_.Look(MonotonicSeconds(), reader_.body_bytes())) {
      return read_deadline_.Set(*seconds, this->shared_from_this());
    }
    Refuse(context_.service.ErrorAnswer(408, "the request did not arrive in time"));
  }

  void OnClientSlow() {
    if (phase_ == Phase::kClosing) return CloseNow();
    GiveUp("the client does not read");
  }

  void CloseGently() {
    phase_ = Phase::kClosing;
    read_deadline_.Stop();
    write_deadline_.Set(kLingerSeconds, this->shared_from_this());
    // A read of the stream ends first. OnRead then goes on.
    if (!is_reading_) return Linger();
    error_code ignored;
    socket().cancel(ignored);
  }

  // Ends the own side, and throws away what still comes.
  void Linger() {
    reader_.GiveUp();
    const auto discard = [self = this->shared_from_this()] {
      if (self->phase_ != Phase::kClosing) return;
      error_code ignored;
      self->socket().shutdown(tcp::socket::shutdown_send, ignored);
      self->Discard();
    };
    if constexpr (kEncrypted) {
      // This fails if the client still sends, but the client has the end of the stream then.
      stream_.async_shutdown([discard](const error_code&) { discard(); });
    } else {
      discard();
    }
  }

  // Reads from the socket below the stream.
  void Discard() {
    ResizeInbox(kBodyInboxBytes);
    socket().async_read_some(asio::buffer(inbox_), [self = this->shared_from_this()](
                                                       const error_code& error, size_t count) {
      if (self->phase_ != Phase::kClosing) return;
      self->discarded_bytes_ += count;
      if (error || self->discarded_bytes_ > kLingerBytes) return self->CloseNow();
      self->Discard();
    });
  }

  // Everything that the connection waits for ends then, and so does the connection.
  void CloseNow() {
    if (std::exchange(phase_, Phase::kClosed) == Phase::kClosed) return;
    read_deadline_.Stop();
    write_deadline_.Stop();
    error_code ignored;
    socket().close(ignored);
  }

  ConnectionContext& context_;
  const std::function<void()> on_closed_;
  const std::shared_ptr<asio::ssl::context> tls_;
  Stream stream_;
  RequestReader reader_;
  BodyPace pace_;
  Deadline read_deadline_;
  Deadline write_deadline_;
  std::string inbox_;
  AnswerBuffer out_;
  std::shared_ptr<Exchange> exchange_;
  AccessEntry entry_;
  ByteLease lease_;               // what the present exchange holds
  uint64_t collected_bytes_ = 0;  // those of its answer
  uint64_t discarded_bytes_ = 0;
  Phase phase_ = Phase::kRequest;
  bool is_reading_ = false;
  bool draining_ = false;
  // About the present request.
  bool is_head_checked_ = false;
  bool keeps_alive_ = false;
};

}  // namespace

std::shared_ptr<Connection> MakeConnection(tcp::socket socket,
                                           const std::shared_ptr<asio::ssl::context>& tls,
                                           ConnectionContext& context,
                                           std::function<void()> on_closed) {
  if (tls == nullptr) {
    return std::make_shared<HttpConnection<tcp::socket>>(context, std::move(on_closed), tls,
                                                         std::move(socket));
  }
  return std::make_shared<HttpConnection<TlsStream>>(context, std::move(on_closed), tls,
                                                     std::move(socket), *tls);
}

}  // namespace tandem::gateway
