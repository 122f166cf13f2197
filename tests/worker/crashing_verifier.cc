// A verifier that dies when it gets a certain token, like the real one at a request that crashes
// it. Usage: crashing_verifier --listen ADDRESS --model DIR --threads N TOKEN_ID
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "common/status.h"
#include "services/verifier/verifier_server.h"
#include "services/worker/worker_model.h"

namespace tandem {
namespace {

class CrashingModel final : public LanguageModel {
 public:
  CrashingModel(std::unique_ptr<LanguageModel> model, int32_t bomb)
      : model_(std::move(model)), bomb_(bomb) {}

  const ModelDescription& description() const override { return model_->description(); }
  uint64_t weight_bytes() const override { return model_->weight_bytes(); }
  uint64_t progress() const override { return model_->progress(); }
  absl::StatusOr<LogitsView> Forward(std::span<const ForwardItem> items) override {
    for (const ForwardItem& item : items) {
      for (int32_t token : item.token_ids) {
        if (token == bomb_) std::_Exit(134);
      }
    }
    return model_->Forward(items);
  }

 private:
  std::unique_ptr<LanguageModel> model_;
  int32_t bomb_;
};

absl::Status Serve(const std::string& listen, const WorkerModelOptions& options, int32_t bomb) {
  TANDEM_ASSIGN_OR_RETURN(const Address address, Address::Parse(listen));
  auto threads = std::make_unique<ThreadPool>(options.threads);
  TANDEM_ASSIGN_OR_RETURN(auto llama, LanguageModel::Load(options.folder, threads.get()));
  TANDEM_ASSIGN_OR_RETURN(auto tokenizer, Tokenizer::Load(options.folder));
  TANDEM_ASSIGN_OR_RETURN(
      const auto model, WorkerModel::Create(options, std::move(threads),
                                            std::make_unique<CrashingModel>(std::move(llama), bomb),
                                            std::move(tokenizer)));
  TANDEM_ASSIGN_OR_RETURN(const auto server, VerifierServer::Start(address, *model, {}));
  std::printf("ready: %s\n", server->address().c_str());
  std::fflush(stdout);
  server->Run();
  return absl::OkStatus();
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  std::string listen;
  tandem::WorkerModelOptions options;
  int32_t bomb = -1;
  CLI::App app("A verifier that dies when it gets a certain token.");
  app.add_option("--listen", listen)->required();
  app.add_option("--model", options.folder)->required();
  app.add_option("--threads", options.threads);
  app.add_option("token", bomb)->required();
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = tandem::Serve(listen, options, bomb);
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}
