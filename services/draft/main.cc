// tandem-draft: runs the draft model, which guesses the next few tokens.
#include "services/draft/drafter_server.h"
#include "services/worker/worker_main.h"
#ifdef TANDEM_HAS_CUDA
#include "services/draft/cuda_proposer.h"
#include "services/worker/load_on_gpu.h"
#endif

namespace {

#ifdef TANDEM_HAS_CUDA
constexpr auto kLoadDraftOnGpu = tandem::LoadOnGpu;
constexpr auto kMakeProposer = tandem::MakeCudaProposer;
#else
constexpr auto kLoadDraftOnGpu = nullptr;
constexpr auto kMakeProposer = nullptr;
#endif

}  // namespace

int main(int argc, char** argv) {
  return tandem::RunWorker(
      argc, argv,
      {.description = "Tandem's draft worker runs the small model that guesses the next tokens.\n"
                      "A router talks to it. People talk to the router.",
       .may_cut_context = true,
       .load_on_gpu = kLoadDraftOnGpu,
       .start = [](const tandem::WorkerEndpoint& endpoint, tandem::ModelShelf& models,
                   const std::filesystem::path& /*ring_dir*/) {
         return tandem::StartDrafterServer(endpoint, models, kMakeProposer);
       }});
}
