from dgl_lara.cli import main

main()
