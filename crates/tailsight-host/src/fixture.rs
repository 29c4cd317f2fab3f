//! Test help: a made file tree that stands for a host.

use crate::Root;
use std::fs;

/// A temporary tree, removed when dropped.
pub(crate) struct Tree {
    dir: tempfile::TempDir,
}

impl Tree {
    /// A tree of `(absolute path, content)`; a final newline is added, as the kernel's files have.
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let tree = Tree { dir: tempfile::tempdir().unwrap() };
        for (path, content) in files {
            tree.put(path, format!("{content}\n"));
        }
        tree
    }

    pub(crate) fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.root().path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn link(&self, path: &str, target: &str) {
        let path = self.root().path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
    }

    pub(crate) fn root(&self) -> Root {
        Root::at(self.dir.path())
    }
}
