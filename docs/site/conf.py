"""Sphinx's configuration for site.py."""
project = html_title = "kvlease"
extensions = ["myst_parser"]
html_theme = "basic"
html_theme_options = {"globaltoc_includehidden": True, "globaltoc_maxdepth": 2, "nosidebar": False}
html_sidebars = {"**": ["searchbox.html", "globaltoc.html"]}
templates_path = ["."]
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = html_show_sphinx = html_show_copyright = html_use_index = html_domain_indices = False
myst_heading_anchors = 4
# Most code blocks show output.
highlight_language = "none"
pygments_style = "bw"
smartquotes = False
suppress_warnings = ["misc.highlighting_failure", "myst.header"]
