//! The least a wasm filter can be: a context for each request, every callback the default one. The `filter` bench
//! measures it, so that what Envoy and the ABI cost is known apart from what Tidegate's own work costs.

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;

proxy_wasm::main! {{
    proxy_wasm::set_root_context(|_| Box::new(Root));
}}

struct Root;

impl Context for Root {}

impl RootContext for Root {
    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn create_http_context(&self, _context_id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Request))
    }
}

struct Request;

impl Context for Request {}

impl HttpContext for Request {}
