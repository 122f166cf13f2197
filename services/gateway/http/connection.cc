#include "services/gateway/http/connection.h"

#include <algorithm>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <string>
#include <type_traits>
#include <utility>

#include "services/gateway/http/access_entry.h"
#include "services/gateway/http/answer_buffer.h"
#include "services/gateway/http/answer_head.h"
#include "services/gateway/http/deadline.h"
#include "services/gateway/http/request_reader.h"

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

template <typename Stream>
class HttpConnection final : public Connection,
                             public Reply,
                             public std::enable_shared_from_this<HttpConnection<Stream>> {
 public:
  // `stream` has the arguments of the stream's constructor.
  template <typename... Arguments>
  HttpConnection(const ConnectionContext& context, std::function<void()> on_closed,
                 std::shared_ptr<asio::ssl::context> tls, Arguments&&... stream)
      : context_(context),
        on_closed_(std::move(on_closed)),
        tls_(std::move(tls)),
        stream_(std::forward<Arguments>(stream)...),
        reader_(context.limits, &context.bodies),
        read_deadline_(stream_.get_executor(), [this] { OnRequestLate(); }),
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
    if (phase_ != Phase::kAnswer || is_answered_) return;
    entry_.SetStatus(answer.status);
    keeps_alive_ = keeps_alive_ && !draining_;
    out_.Append(AnswerHead(answer, notes().request_id, keeps_alive_));
    if (!entry_.is_head()) out_.Append(answer.body);
    SetAnswered();
  }

  void BeginStream() override {
    const bool in_pieces = !reader_.speaks_old_http();
    entry_.SetStatus(200);
    keeps_alive_ = keeps_alive_ && in_pieces && !draining_;
    out_.Append(StreamHead(notes().request_id, in_pieces, keeps_alive_));
    out_.BeginBody(in_pieces);
  }

  void Write(std::string_view bytes) override {
    if (phase_ != Phase::kAnswer || is_answered_) return;
    out_.AppendToBody(bytes);
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

  // Reads more, if there is room and no read is under way.
  void Read() {
    if (is_reading_ || phase_ == Phase::kClosed) return;
    const bool discards = phase_ == Phase::kClosing;
    if (phase_ == Phase::kAnswer && reader_.waiting_bytes() >= limits().header_bytes) return;
    const size_t wanted = reader_.state() == State::kBody ? kBodyInboxBytes : kInboxBytes;
    const size_t size = discards ? wanted : std::min(wanted, reader_.free_bytes());
    if (size == 0) return;
    if (inbox_.size() != size) {
      inbox_.resize(size);
      inbox_.shrink_to_fit();
    }
    is_reading_ = true;
    stream_.async_read_some(asio::buffer(inbox_),
                            [self = this->shared_from_this()](const error_code& error, size_t n) {
                              self->OnRead(error, n);
                            });
  }

  void OnRead(const error_code& error, size_t count) {
    is_reading_ = false;
    if (phase_ == Phase::kClosed) return;
    if (error) return OnClientGone();
    if (phase_ != Phase::kClosing) reader_.Put(std::string_view(inbox_.data(), count));
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
        read_deadline_.Set(limits().request_seconds, this->shared_from_this());
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
    HttpRequest request = reader_.Take();
    Read();
    std::shared_ptr<Exchange> exchange =
        context_.service.Answer(std::move(request), this->shared_from_this());
    if (phase_ == Phase::kAnswer && !is_answered_) exchange_ = std::move(exchange);
  }

  // Answers without a call. A body that is still to come is not told apart from a next request, so
  // the connection then ends.
  void Refuse(HttpAnswer answer) {
    BeginAnswer();
    if (reader_.state() == State::kWhole) {
      reader_.Take();
    } else {
      keeps_alive_ = false;
    }
    Send(std::move(answer));
  }

  void SetAnswered() {
    is_answered_ = true;
    exchange_.reset();
    Flush();
  }

  void Flush() {
    if (out_.is_writing() || phase_ == Phase::kClosed) return;
    if (!out_.has_more()) {
      if (is_answered_) OnAnswered();
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
    if (!keeps_alive_) return CloseGently();
    phase_ = Phase::kRequest;
    is_head_checked_ = is_answered_ = false;
    read_deadline_.Set(limits().idle_seconds, this->shared_from_this());
    Advance();
  }

  // The client has closed its side, or the connection is broken.
  void OnClientGone() {
    // An answer that is on its way may still reach a client that only ended its own side.
    if (phase_ == Phase::kAnswer && is_answered_) {
      keeps_alive_ = false;
      return;
    }
    GiveUp("the client left");
  }

  void GiveUp(const char* why) {
    if (phase_ == Phase::kAnswer) {
      entry_.SetStatus(499);
      if (notes().detail.empty()) notes().detail = why;
      entry_.End(context_.service);
    }
    const std::shared_ptr<Exchange> exchange = std::exchange(exchange_, nullptr);
    CloseNow();
    if (exchange != nullptr) exchange->OnGone();
  }

  void OnRequestLate() {
    if (phase_ != Phase::kRequest || reader_.state() == State::kIdle) return CloseNow();
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
    if constexpr (kEncrypted) {
      stream_.async_shutdown(
          [self = this->shared_from_this()](const error_code&) { self->CloseNow(); });
    } else {
      error_code ignored;
      socket().shutdown(tcp::socket::shutdown_send, ignored);
      Read();
    }
  }

  // Everything that the connection waits for ends then, and so does the connection.
  void CloseNow() {
    if (std::exchange(phase_, Phase::kClosed) == Phase::kClosed) return;
    read_deadline_.Stop();
    write_deadline_.Stop();
    error_code ignored;
    socket().close(ignored);
  }

  const ConnectionContext context_;
  const std::function<void()> on_closed_;
  const std::shared_ptr<asio::ssl::context> tls_;
  Stream stream_;
  RequestReader reader_;
  Deadline read_deadline_;
  Deadline write_deadline_;
  std::string inbox_;
  AnswerBuffer out_;
  std::shared_ptr<Exchange> exchange_;
  AccessEntry entry_;
  Phase phase_ = Phase::kRequest;
  bool is_reading_ = false;
  bool draining_ = false;
  // About the present request.
  bool is_head_checked_ = false;
  bool keeps_alive_ = false;
  bool is_answered_ = false;
};

}  // namespace

std::shared_ptr<Connection> MakeConnection(tcp::socket socket,
                                           const std::shared_ptr<asio::ssl::context>& tls,
                                           const ConnectionContext& context,
                                           std::function<void()> on_closed) {
  if (tls == nullptr) {
    return std::make_shared<HttpConnection<tcp::socket>>(context, std::move(on_closed), tls,
                                                         std::move(socket));
  }
  return std::make_shared<HttpConnection<TlsStream>>(context, std::move(on_closed), tls,
                                                     std::move(socket), *tls);
}

}  // namespace tandem::gateway
