//! `tailsight man`: the man pages, to standard output or as files in a folder.

use anyhow::Context;

use crate::cli::Man;
use crate::{Exit, pipeline, reference, terminal};

/// Prints a page, or writes all of them.
pub fn run(args: &Man) -> anyhow::Result<Exit> {
    let Some(folder) = &args.out else {
        let name = args.command.as_deref().unwrap_or("tailsight");
        terminal::print(&reference::man_page(name).with_context(|| format!("there is no man page for `{name}`"))?)?;
        return Ok(Exit::Done);
    };
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
    for (name, text) in reference::man_pages()? {
        let path = folder.join(name);
        pipeline::write_whole(&path, text)?;
    }
    Ok(Exit::Done)
}
