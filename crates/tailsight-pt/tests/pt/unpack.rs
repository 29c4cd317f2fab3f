//! The recordings of whole machines are in the repository compressed, file by file. The tests of tailsight use this file too.

use std::path::Path;

/// Unpacks every `.gz` file of a folder and the folders in it, under its name without that ending.
pub fn unpack(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            unpack(&path, &to.join(name));
            continue;
        }
        let mut file = std::fs::File::create(to.join(name.strip_suffix(".gz").unwrap())).unwrap();
        std::io::copy(&mut flate2::read::GzDecoder::new(std::fs::File::open(&path).unwrap()), &mut file).unwrap();
    }
}
