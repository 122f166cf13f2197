// tandem-draft: the draft model. Guesses the next few tokens.
#include <memory>

#include "services/draft/draft_session.h"
#include "services/worker/worker_main.h"
#ifdef TANDEM_HAS_CUDA
#include "services/worker/cuda_backend.h"
#endif

int main(int argc, char** argv) {
  return tandem::RunWorker(
      argc, argv,
      {.name = "tandem-draft",
       .description =
           "Tandem's draft worker: runs the small model that guesses the next tokens.\nA "
           "router talks to it; people talk to the router.",
       .may_cut_context = true,
#ifdef TANDEM_HAS_CUDA
       .load_on_gpu = tandem::LoadOnGpu,
#endif
       .start = [](const tandem::Address& address, const tandem::WorkerModel& model,
                   const std::filesystem::path&) {
         return tandem::DraftServer::Start(
             address, [&model] { return std::make_unique<tandem::DraftSession>(&model); },
             [&model] { return model.model().progress(); });
       }});
}
