// tandem-draft: the draft model. Guesses the next few tokens.
#include <memory>

#include "services/draft/draft_session.h"
#include "services/worker/worker_main.h"
#ifdef TANDEM_HAS_CUDA
#include "services/draft/cuda_proposer.h"
#include "services/worker/cuda_backend.h"
#endif

namespace {

#ifdef TANDEM_HAS_CUDA
constexpr auto kLoadOnGpu = tandem::LoadOnGpu;
using tandem::MakeCudaProposer;
#else
constexpr auto kLoadOnGpu = nullptr;
std::unique_ptr<tandem::Proposer> MakeCudaProposer(tandem::LlamaModel& /*model*/) {
  return nullptr;
}
#endif

}  // namespace

int main(int argc, char** argv) {
  return tandem::RunWorker(
      argc, argv,
      {.name = "tandem-draft",
       .description =
           "Tandem's draft worker: runs the small model that guesses the next tokens.\nA "
           "router talks to it; people talk to the router.",
       .may_cut_context = true,
       .load_on_gpu = kLoadOnGpu,
       .start = [](const tandem::WorkerEndpoint& endpoint, const tandem::WorkerModel& model,
                   const std::filesystem::path&) {
         return tandem::DraftServer::Start(
             endpoint,
             [&model] {
               return std::make_unique<tandem::DraftSession>(&model,
                                                             MakeCudaProposer(model.model()));
             },
             [&model] { return model.model().progress(); });
       }});
}
