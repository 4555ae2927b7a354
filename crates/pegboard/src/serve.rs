//! Serves tools of this program.

use std::time::Duration;

use pegboard_core::error::Result;
use pegboard_core::provider::IntoProvider;
use pegboard_core::settings::gateway::{Expose, GatewaySettings};
use pegboard_gateway::Gateway;
use pegboard_gateway::serve::stdio;
use pegboard_runtime::Runtime;

/// Time for calls in flight to end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves tools to one MCP client over stdin and stdout until it disconnects. The client sees them under their own names.
///
/// Takes `tools![…]`, a [`ToolRegistry`](crate::registry::ToolRegistry) or any other provider. For other transports, queues
/// or several servers, start a [`Runtime`] and a [`Gateway`].
///
/// ```no_run
/// use pegboard::prelude::*;
///
/// /// Convert a temperature to Fahrenheit.
/// #[tool]
/// async fn fahrenheit(celsius: f64) -> Result<f64> {
///     Ok(celsius * 9.0 / 5.0 + 32.0)
/// }
///
/// # #[tokio::main]
/// # async fn main() -> Result<()> {
/// pegboard::serve(tools![fahrenheit]).await
/// # }
/// ```
pub async fn serve(tools: impl IntoProvider) -> Result<()> {
    let runtime = Runtime::builder().provide("tools", tools).start().await?;
    let settings = GatewaySettings { expose: Expose::Flat, transparent: true, ..GatewaySettings::default() };
    let gateway = Gateway::new(&runtime, &settings)?;
    stdio(&gateway, None).await?;
    runtime.shut_down(SHUTDOWN_TIMEOUT).await;
    Ok(())
}
