import { createRoot } from "react-dom/client";
import { CopilotChat, CopilotKitProvider, useDefaultRenderTool } from "@copilotkit/react-core/v2";
import "@copilotkit/react-core/v2/styles.css";

function Chat() {
  // Show each tool call of the agent, with its arguments as they come and its result.
  useDefaultRenderTool();
  return <CopilotChat agentId="default" />;
}

createRoot(document.getElementById("root")).render(
  <CopilotKitProvider runtimeUrl="/api/copilotkit" showDevConsole={false}>
    <Chat />
  </CopilotKitProvider>,
);
