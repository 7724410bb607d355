pub mod timeline;
pub mod view;
